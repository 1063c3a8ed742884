# SPDX-License-Identifier: Apache-2.0
"""StaticParameter: a table whose keys are 0 .. vocabulary - 1, on the rows of the native core."""

from __future__ import annotations

import itertools
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_rec.cache.config import CacheConfig
from mindspore_rec.checks import check_int, check_one_of
from mindspore_rec.parameter.initializers import row_initializer
from mindspore_rec.parameter.map_parameter import MAX_SEED
from mindspore_rec.parameter.table_parameter import TableParameter

_counter = itertools.count()


class StaticParameter(TableParameter):
    """The static-vocabulary sibling of `MapParameter`: the id is its own index.

    Memory for a row is touched when the row is first seen; until then its value is known (a
    function of seed, name and id) but takes no space.

    Args:
        vocab_size: number of ids, 1 to 2**35.
        embedding_size: floats in a row, 1 to 8192.
        param_init: a number, an initializer's name or object as for `MapParameter`, or a float32
            Tensor `[vocab_size, embedding_size]` of values.
        name: of two open tables with one name only the newer can be used.
            Default: `embedding_table_<n>`.
        out_of_range: what an id outside the vocabulary does: 'error' or read 'zeros'.
        requires_grad: whether training changes it. Default: True.
        seed: of the first values. Default: 0.
        cache: the tiers its rows live in, a `CacheConfig`. Default: all rows in host memory.

    Example:
        >>> from mindspore_rec import StaticParameter
        >>> table = StaticParameter(4, 2, "ones", name="doc.static")
        >>> table.asnumpy().shape
        (4, 2)
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        param_init: Any = "normal",
        *,
        name: str | None = None,
        out_of_range: str = "error",
        requires_grad: bool = True,
        seed: int = 0,
        cache: CacheConfig | None = None,
    ) -> None:
        if name is None:
            name = f"embedding_table_{next(_counter)}"
        where = f"table '{name}': "
        vocab_size = check_int(where + "vocab_size", vocab_size, 1, 1 << 35)
        embedding_size = check_int(where + "embedding_size", embedding_size, 1, 8192)
        check_one_of(where + "out_of_range", out_of_range, ("error", "zeros"))
        values = param_init if isinstance(param_init, Tensor) else None
        if values is not None and (
            tuple(values.shape) != (vocab_size, embedding_size) or values.dtype != ms.float32
        ):
            raise ValueError(
                f"table '{name}': param_init must be a float32 Tensor of shape "
                f"{(vocab_size, embedding_size)}, got {values.dtype} {tuple(values.shape)}"
            )
        init = row_initializer(
            0.0 if values is not None else param_init,
            fan_in=embedding_size,
            fan_out=vocab_size,
            argument="param_init",
        )
        super().__init__(
            requires_grad=requires_grad,
            key_dtype=ms.int64,
            cache=cache,
            name=name,
            dim=embedding_size,
            seed=check_int(where + "seed", seed, 0, MAX_SEED),
            vocabulary=vocab_size,
            outside_zeros=out_of_range == "zeros",
            **init.native_arguments(),
        )
        self.vocab_size = vocab_size
        self.out_of_range = out_of_range
        if values is not None:
            self.set_data(values)
            self._rows_given = None

    @property
    def shape(self) -> tuple[int, int]:
        """`(vocab_size, embedding_size)`."""
        return self.vocab_size, self.dim

    def asnumpy(self) -> np.ndarray:
        """A copy of all values: float32 `[vocab_size, embedding_size]`."""
        rows = self.native.export_rows()
        values = np.empty((self.vocab_size, self.dim), np.float32)
        values[rows["keys"]] = rows["values"]
        return values

    def set_data(self, values: Tensor | np.ndarray) -> None:
        """Replaces all values; optimizer state starts fresh.

        Args:
            values: float32 `[vocab_size, embedding_size]`.
        """
        array = values.asnumpy() if isinstance(values, Tensor) else np.asarray(values)
        if array.shape != self.shape or array.dtype != np.float32:
            raise ValueError(
                f"table '{self.name}': values must be float32 {self.shape}, "
                f"got {array.dtype} {array.shape}"
            )
        keys = np.arange(self.vocab_size, dtype=np.int64)
        self.native.import_rows(keys, np.ascontiguousarray(array))
        self.keep_rows()
