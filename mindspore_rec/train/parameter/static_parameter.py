# SPDX-License-Identifier: Apache-2.0
"""StaticParameter: a table over a fixed vocabulary as a parameter of a network."""

from __future__ import annotations

import dataclasses
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.old_arguments import Renamed, takes_old
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.rows.table_scope import next_number
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.train.parameter.initializers import row_initializer
from mindspore_rec.train.parameter.table_config import (
    MAX_DIM,
    MAX_SEED,
    MAX_VOCAB_SIZE,
    TableConfig,
)
from mindspore_rec.train.parameter.table_parameter import TableParameter
from mindspore_rec.train.parameter.upstream import (
    REQUIRED,
    check_described_once,
    check_static_config,
    describing_arguments,
)


class StaticParameter(TableParameter):
    """A table over a fixed vocabulary: each id in 0 .. vocab_size - 1 has a row.

    A row takes no memory until its first lookup in training. Before the first lookup in training, a
    row's value is computed from seed, name and id.

    Args:
        vocab_size: number of ids, 1 to 2**35.
        embedding_dim: number of floats in a row, 1 to 8192.
        param_init: initial values: a number, the name of an initializer, an initializer object, or
            a float32 Tensor `[vocab_size, embedding_dim]`. The legal names and objects are the same
            as for `MapParameter`. Default: 'normal'.
        name: name of the table. If two open tables have the same name, only the newer table can be
            used. Default: `embedding_table_<n>`.
        out_of_range: effect of an id outside the vocabulary, as for `TableConfig`. Default:
            'error'.
        requires_grad: whether training changes the table. Default: True.
        seed: seed of the initial values. Default: 0.
        cache: tiers that store the rows, as for `TableConfig`. Default: all rows in host memory.
        config: a `TableConfig` with `vocab_size`. `config` replaces all other arguments.

    Raises:
        TypeError: an argument is of the wrong type or missing.
        ValueError: an argument is out of range; or `config` is set together with another argument
            that describes the table; or a tier contains rows of an earlier run.
        OSError, RemoteError: a tier cannot be opened.

    Example:
        >>> from mindspore_rec import StaticParameter
        >>> table = StaticParameter(4, 2, "ones", name="doc.static")
        >>> table.asnumpy().shape
        (4, 2)
    """

    @takes_old(Renamed("embedding_size", "embedding_dim"))
    def __init__(
        self,
        vocab_size: int = REQUIRED,
        embedding_dim: int = REQUIRED,
        param_init: Any = "normal",
        *,
        name: str | None = None,
        out_of_range: str = "error",
        requires_grad: bool = True,
        seed: int = 0,
        cache: CacheConfig | None = None,
        config: TableConfig | None = None,
    ) -> None:
        describing = describing_arguments(StaticParameter.__init__, locals())
        check_described_once(describing, config, vocab_size=vocab_size, embedding_dim=embedding_dim)
        name = config.name if config is not None else name
        if name is None:
            name = f"embedding_table_{next_number('embedding_table')}"
        values = param_init if isinstance(param_init, Tensor) else None
        if config is None:
            where = f"table '{name}': "
            vocab_size = check_int(where + "vocab_size", vocab_size, 1, MAX_VOCAB_SIZE)
            embedding_dim = check_int(where + "embedding_dim", embedding_dim, 1, MAX_DIM)
            initializer = 0.0 if values is not None else param_init
            row_initializer(
                initializer, fan_in=embedding_dim, fan_out=vocab_size, argument="param_init"
            )
            config = TableConfig(
                embedding_dim,
                name=name,
                initializer=initializer,
                seed=check_int(where + "seed", seed, 0, MAX_SEED),
                requires_grad=requires_grad,
                vocab_size=vocab_size,
                out_of_range=out_of_range,
                cache=cache,
            )
            _check_values(name, values, (vocab_size, embedding_dim))
        size = check_static_config("StaticParameter", config)
        super().__init__(dataclasses.replace(config, name=name))
        self.vocab_size = size
        self.out_of_range = config.out_of_range
        if values is not None:
            self.start_from(values)

    @property
    def shape(self) -> tuple[int, int]:
        """`(vocab_size, embedding_dim)`."""
        return self.vocab_size, self.dim

    def asnumpy(self) -> np.ndarray:
        """Return a copy of all values: float32 `[vocab_size, embedding_dim]`."""
        rows = self._synchronised().export_all()
        values = np.empty((self.vocab_size, self.dim), np.float32)
        values[rows["keys"]] = rows["values"]
        return values

    def start_from(self, values: Tensor | np.ndarray) -> None:
        """Set the initial values of a new table.

        If MindSpore loads weights directly after this call, lookups raise an error until the
        table's rows are loaded too. If MindSpore loads weights directly after `set_data`, lookups
        raise no error.

        Args:
            values: float32 `[vocab_size, embedding_dim]`.

        Raises:
            ValueError: `values` have the wrong shape or dtype.
        """
        self.set_data(values)
        self._rows_given = None

    def set_data(self, values: Tensor | np.ndarray) -> None:
        """Replace all values, and reset the optimizer state.

        Args:
            values: float32 `[vocab_size, embedding_dim]`.

        Raises:
            ValueError: `values` have the wrong shape or dtype.
        """
        array = values.asnumpy() if isinstance(values, Tensor) else np.asarray(values)
        if array.shape != self.shape or array.dtype != np.float32:
            raise ValueError(
                f"table '{self.name}': values must be float32 {self.shape}, "
                f"got {array.dtype} {array.shape}"
            )
        native = self._synchronised()
        keys = np.arange(self.vocab_size, dtype=np.int64)
        if native.workers > 1:
            keys = keys[native.owners(keys) == worker_group().rank]  # each worker has its own rows
        native.import_rows(keys, np.ascontiguousarray(array[keys]))
        self.keep_rows()


def _check_values(name: str, values: Tensor | None, shape: tuple[int, int]) -> None:
    if values is not None and (tuple(values.shape) != shape or values.dtype != ms.float32):
        raise ValueError(
            f"table '{name}': param_init must be a float32 Tensor of shape {shape}, "
            f"got {values.dtype} {tuple(values.shape)}"
        )
