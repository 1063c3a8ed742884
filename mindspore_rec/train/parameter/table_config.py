# SPDX-License-Identifier: Apache-2.0
"""TableConfig: the description of a table, for every class or function that makes tables."""

from __future__ import annotations

import zlib
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import mindspore as ms
from mindspore.common.initializer import Initializer

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.common.old_arguments import Renamed, old_attribute, takes_old
from mindspore_rec.common.rows.policies import (
    Admission,
    CountAdmission,
    Eviction,
    check_admission,
    check_eviction,
    check_unknown_value,
)
from mindspore_rec.common.tiers.config import CacheConfig, check_cache
from mindspore_rec.train.parameter.initializers import RowInitializer, row_initializer

__all__ = ["TableConfig"]

MAX_DIM = 8192
MAX_SEED = (1 << 64) - 1
MAX_VOCAB_SIZE = 1 << 35
OUT_OF_RANGE = ("error", "zeros")
PLACEMENTS = ("sharded", "owner", "replicated")
MAX_OWNER = (1 << 31) - 1
VALUE_DTYPES = (ms.float32, ms.bfloat16, ms.float16)
ROUNDINGS = ("stochastic", "nearest")
EVERY_KEY = CountAdmission(1)  # a key gets its row when it is first seen in training

_HASH_ONLY = ("admission", "eviction", "unknown_value", "serving_unknown_value")


@old_attribute("dim", "embedding_dim")
@takes_old(Renamed("dim", "embedding_dim", replaces=True))
@dataclass(frozen=True, eq=False, repr=False)
class TableConfig:
    """Description of an embedding table: size, initial values and lifetime of its rows.

    Every class or function that makes a table accepts a TableConfig as `config=`: `MapParameter`,
    `StaticParameter`, `HashEmbeddingLookup`, `EmbeddingLookup`, `EmbeddingBag`, `GroupedEmbedding`,
    `create_table` and `convert`. With `config=`, leave out all other arguments that describe a
    table. The arguments that describe a table have the names and defaults of MindSpore, MindRec and
    Rec SDK.

    There are two kinds of tables. A *hash table* accepts any id of its key dtype and grows as ids
    arrive. A *static table* has a `vocab_size` and accepts the ids 0 .. vocab_size - 1.

    Two configs are equal if all their fields are equal; initializers are compared as distributions,
    so that 'zeros' equals 0. `dataclasses.replace(config, name="other")` describes another table
    with equal settings.

    Args:
        embedding_dim: number of floats in a row, 1 to 8192.
        name: name of the table. Name and seed determine the initial value of every row. The table's
            name also identifies the table's rows in checkpoints, on SSD and on a server. If two
            open tables have the same name, only the newer table can be used. Default: a numbered
            name.
        key_dtype: dtype of the keys, `int32` or `int64`; a table with int32 keys refuses int64 ids.
            Keys of a static table are int64. Default: `int64`; `int32` for classes that have the
            arguments of MindSpore or MindRec.
        value_dtype: dtype of a row's values, `float32`, `bfloat16` or `float16`. Computations are
            in float32, and lookups and NumPy arrays have float32 values; see `docs/precision.md`.
            Default: `float32`.
        initializer: initial value of a row: a number, 'normal' (standard deviation 0.01),
            'truncated_normal', 'uniform', 'xavier_uniform', 'zeros', 'ones', or an Initializer of
            one of these kinds from `mindspore.common.initializer`. Default: 'normal'.
        seed: seed of the initial values, 0 to 2**64 - 1. Default: 0; for `create_table`, the seed
            of the session (`mindspore_rec.init`) if the session has a seed.
        requires_grad: True if training changes the table; False for a frozen table, which neither
            training nor lookups change. Default: True.
        admission: policy that decides when a key gets a row: a `CountAdmission`, `SketchAdmission`
            or `ProbabilityAdmission`. For a key without a row, lookups return `unknown_value`, and
            training skips the key. Only for hash tables. Default: `CountAdmission(1)`, which admits
            a key at the first occurrence in training.
        eviction: rules for the removal of rows, an `Eviction`. Only for hash tables. Default: no
            eviction.
        unknown_value: value of a key without a row: a number, or `embedding_dim` numbers (list,
            tuple, array or Tensor; stored as a tuple). Only for hash tables. Default: the number if
            `initializer` is a number, zeros if `initializer` is a distribution.
        serving_unknown_value: in evaluation and prediction, the value of a key without a row; the
            legal types are the same as for `unknown_value`. Only for hash tables. Default:
            `unknown_value`.
        vocab_size: number of ids of a static table, 1 to 2**35. Default: None, which means a hash
            table.
        out_of_range: effect of an id outside the vocabulary of a static table: 'error' raises an
            error with the id, 'zeros' returns zeros. Default: 'error'.
        cache: tiers that store the rows, a `CacheConfig`. Default: all rows in host memory.
        placement: distribution of the rows over several workers. Without a launcher, `placement`
            has no effect. With 'sharded', a hash of the key assigns each row to one worker, and all
            workers have about the same number of rows. Use 'owner' for small tables: one worker
            stores all rows. Use 'replicated' for small tables with frequent lookups: every worker
            stores all rows and trains the rows in the same way. For a replicated table, each worker
            sends its keys and gradients, but no rows, to all workers. Capacities (`max_rows`,
            `max_bytes`, `max_candidates`) are totals over all workers. Default: 'sharded'.
        owner: index, >= 0, of the worker that stores all rows if `placement` is 'owner'. The index
            is taken modulo the number of workers. Default: a hash of the name.
        gradient_dtype: dtype of gradients that are sent between workers, `float32` or `bfloat16`.
            With `bfloat16`, gradients take half the bytes of float32 and are rounded to 8
            significant bits. Default: `float32`.
        state_dtype: dtype of optimizer states that are moving averages or decaying sums (in Adam,
            Momentum, RMSProp), `float32` or `bfloat16`. Default: `float32`.
        accumulator_dtype: dtype of optimizer states that are sums of all gradients so far (in
            Adagrad, row-wise Adagrad, FTRL), `float32` or `bfloat16`. With `bfloat16`, the rounding
            to 8 significant bits drops most small increments of a large sum.
            Default: `float32`.
        rounding: how an optimizer step rounds 2-byte values and states: 'stochastic' or 'nearest'.
            Stochastic rounding rounds up or down at random, so that the mean result equals the
            exact number and small updates are not lost. The random choice depends only on seed,
            name, key and step, so that repeated runs give bit-identical results. Default:
            'stochastic'.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: an argument is out of range, or does not apply to this kind of table (hash or
            static).

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import CacheConfig, CountAdmission, HashEmbeddingLookup, TableConfig
        >>> TableConfig(8, name="items", initializer="zeros", admission=CountAdmission(2))
        TableConfig(8, name='items', initializer='zeros',
                    admission=CountAdmission(threshold=2, max_candidates=None))
        >>> TableConfig(8, initializer="zeros") == TableConfig(8, initializer=0.0)
        True
        >>> config = TableConfig(8, name="doc.table_config", cache=CacheConfig(device_rows=1000))
        >>> HashEmbeddingLookup(config=config).embedding_table.name
        'doc.table_config'
        >>> TableConfig(8, value_dtype=ms.int8)
        Traceback (most recent call last):
        ...
        ValueError: value_dtype must be float32, bfloat16 or float16, got Int8
    """

    embedding_dim: int
    _: KW_ONLY
    name: str | None = None
    key_dtype: Any = ms.int64
    value_dtype: Any = ms.float32
    initializer: str | float | Initializer = "normal"
    seed: int | None = None
    requires_grad: bool = True
    admission: Admission | None = None
    eviction: Eviction | None = None
    unknown_value: Any = None
    serving_unknown_value: Any = None
    vocab_size: int | None = None
    out_of_range: str = "error"
    cache: CacheConfig | None = None
    placement: str = "sharded"
    owner: int | None = None
    gradient_dtype: Any = ms.float32
    state_dtype: Any = ms.float32
    accumulator_dtype: Any = ms.float32
    rounding: str = "stochastic"

    def __post_init__(self) -> None:
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise TypeError(f"name must be a non-empty str, got {self.name!r}")
        where = "" if self.name is None else f"table '{self.name}': "
        size = check_int(where + "embedding_dim", self.embedding_dim, 1, MAX_DIM)
        self._set("embedding_dim", size)
        check_key_dtype(where, self.key_dtype)
        self._check_precision(where)
        if self.seed is not None:
            self._set("seed", check_int(where + "seed", self.seed, 0, MAX_SEED))
        if not isinstance(self.requires_grad, bool):
            raise TypeError(f"{where}requires_grad must be a bool, got {self.requires_grad!r}")
        check_admission(self.admission)
        check_eviction(self.eviction)
        for argument in ("unknown_value", "serving_unknown_value"):
            row = check_unknown_value(where + argument, getattr(self, argument), size)
            self._set(argument, row if row is None else row[0] if len(row) == 1 else tuple(row))
        self._check_kind(where)
        check_cache(self.cache)
        self._check_placement(where)
        self._row_initializer(where + "initializer")

    def _check_kind(self, where: str) -> None:
        """Check the arguments that apply only to hash tables or only to static tables."""
        check_one_of(where + "out_of_range", self.out_of_range, OUT_OF_RANGE)
        if self.vocab_size is None:
            if self.out_of_range != "error":
                raise ValueError(f"{where}out_of_range must be left out without vocab_size")
            return
        size = check_int(where + "vocab_size", self.vocab_size, 1, MAX_VOCAB_SIZE)
        self._set("vocab_size", size)
        for argument in _HASH_ONLY:
            if getattr(self, argument) is not None:
                raise ValueError(
                    f"{where}{argument} is for hash tables; with vocab_size leave it out"
                )
        if self.key_dtype != ms.int64:
            raise ValueError(
                f"{where}key_dtype is for hash tables; with vocab_size leave it out, "
                f"got {self.key_dtype}"
            )

    def _check_precision(self, where: str) -> None:
        """Check `value_dtype`, `state_dtype`, `accumulator_dtype` and `rounding`."""
        if self.value_dtype not in VALUE_DTYPES:
            raise ValueError(
                f"{where}value_dtype must be float32, bfloat16 or float16, got {self.value_dtype}"
            )
        for argument in ("state_dtype", "accumulator_dtype"):
            dtype = getattr(self, argument)
            if dtype not in (ms.float32, ms.bfloat16):
                raise ValueError(f"{where}{argument} must be float32 or bfloat16, got {dtype}")
        check_one_of(where + "rounding", self.rounding, ROUNDINGS)

    def _check_placement(self, where: str) -> None:
        """Check `placement`, `owner` and `gradient_dtype`."""
        check_one_of(where + "placement", self.placement, PLACEMENTS)
        if self.owner is not None:
            if self.placement != "owner":
                raise ValueError(
                    f"{where}owner is for placement='owner'; with placement='{self.placement}' "
                    "leave it out"
                )
            self._set("owner", check_int(where + "owner", self.owner, 0, MAX_OWNER))
        if self.gradient_dtype not in (ms.float32, ms.bfloat16):
            raise ValueError(
                f"{where}gradient_dtype must be float32 or bfloat16, got {self.gradient_dtype}"
            )

    def _set(self, field: str, value: Any) -> None:
        object.__setattr__(self, field, value)

    def _row_initializer(self, argument: str) -> RowInitializer:
        fan_out = self.embedding_dim if self.vocab_size is None else self.vocab_size
        return row_initializer(
            self.initializer, fan_in=self.embedding_dim, fan_out=fan_out, argument=argument
        )

    def native_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `_native.Table` for a table with this description.

        The returned arguments do not contain the cache: `mindspore_rec.common.tiers.attach` adds
        the tiers to a table.

        Raises:
            ValueError: the config has no name.
        """
        if self.name is None:
            raise ValueError("name must be given")
        init = self._row_initializer("initializer")
        arguments = {
            "name": self.name,
            "dim": self.embedding_dim,
            "seed": self.seed or 0,
            "placement": self.placement,
            "owner": zlib.crc32(self.name.encode()) if self.owner is None else self.owner,
            **init.native_arguments(),
            **self._precision(),
        }
        if self.vocab_size is not None:
            return arguments | {
                "vocabulary": self.vocab_size,
                "outside_zeros": self.out_of_range == "zeros",
            }
        unknown = init.unknown_value if self.unknown_value is None else self.unknown_value
        admission = EVERY_KEY if self.admission is None else self.admission
        eviction = {} if self.eviction is None else self.eviction.native_arguments()
        return arguments | {
            "unknown_value": _row(unknown),
            "serving_unknown_value": _row(self.serving_unknown_value),
            **admission.native_arguments(),
            **eviction,
        }

    def _precision(self) -> dict[str, str]:
        dtypes = ("value_dtype", "state_dtype", "accumulator_dtype")
        named = {each: str(getattr(self, each)).lower() for each in dtypes}
        return {**named, "rounding": self.rounding}

    def _identity(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["initializer"] = self._row_initializer("initializer")
        return tuple(values.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableConfig):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        shown = [repr(self.embedding_dim)]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is field.default or (
                type(value) is type(field.default) and value == field.default
            ):
                continue
            if isinstance(value, Initializer):
                value = self._row_initializer("initializer")
            shown.append(f"{field.name}={value!r}")
        return f"TableConfig({', '.join(shown)})"


def check_key_dtype(where: str, key_dtype: Any) -> None:
    """Raise TypeError if `key_dtype` is not a legal dtype of keys.

    Args:
        where: text that precedes the argument's name in the error message.
        key_dtype: the dtype to check.

    Example:
        >>> check_key_dtype("", ms.int32)
    """
    if key_dtype not in (ms.int32, ms.int64):
        raise TypeError(f"{where}key_dtype must be int32 or int64, got {key_dtype}")


def _row(value: float | tuple[float, ...] | None) -> list[float]:
    if value is None:
        return []
    return list(value) if isinstance(value, tuple) else [value]
