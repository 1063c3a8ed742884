# SPDX-License-Identifier: Apache-2.0
"""MapParameter: a hash table as a parameter, with the surface of MindSpore's experimental class."""

from __future__ import annotations

import dataclasses
import math
import numbers
import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.rows.policies import Admission, CountAdmission, Eviction
from mindspore_rec.common.rows.table_scope import next_number
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.train.graph.operators import TableClosedError, custom_op
from mindspore_rec.train.parameter import graph_syntax  # noqa: F401  (makes m[k] work in a graph)
from mindspore_rec.train.parameter.dynamics import DynamicTable
from mindspore_rec.train.parameter.initializers import row_initializer
from mindspore_rec.train.parameter.table_config import (
    EVERY_KEY,
    MAX_DIM,
    MAX_SEED,
    VALUE_DTYPES,
    TableConfig,
)
from mindspore_rec.train.parameter.upstream import (
    admission_by_filter,
    check_described_once,
    check_hash_config,
    describing_arguments,
    eviction_by_filter,
)

SLICE_BYTES = 1 << 30
_EXPORT = "export"  # holder of the mark of incremental exports
UNCHANGED, MODIFIED, ERASED = 0, 1, 2


ExportedData = tuple[np.ndarray, np.ndarray, np.ndarray]


class MapParameter(DynamicTable):
    """A parameter that maps int keys to rows of numbers, growing as keys arrive.

    Drop-in for `mindspore.experimental.MapParameter`, which has no CPU kernels in MindSpore 2.10.
    Works inside `construct` in GRAPH_MODE and PyNative, and outside. Every key of the key dtype is
    legal. A row's first value is a function of `(seed, name, key)` alone.

    Differences from upstream: it is an `nn.Cell` that owns a Parameter instead of a Parameter;
    whatever the value dtype, values come and go as float32; `put` and `erase` return the
    MapParameter. In a graph write `self.map[key] = value`: the compiler cannot assign through a
    local name (`m = self.map`, then `m[key] = value`); `m.put(key, value)` works through any. To
    freeze a table set `requires_grad` of the MapParameter, not of the Parameter it owns; it is then
    only read, `get` included. Outside a graph keys and values may be NumPy arrays: keys int32 or
    int64 (in the range of int32 if that is the key dtype), values float32.

    Args:
        name: the table's name; of two open tables with one name only the newer can be used.
            Default: `map_parameter_<n>`.
        requires_grad: whether training changes it. Default: True.
        key_dtype: `int32` or `int64`. Default: `int32`.
        value_dtype: how values are kept, `float32`, `bfloat16` or `float16`; see `TableConfig`,
            which also has the precision of the optimizer's state. Default: `float32`.
        value_shape: shape of one value, at most 8192 elements. Default: 1.
        key_tensor: keys to start with, int32 or int64 `[n]`.
        value_tensor: their values, of the value dtype, `[n, *value_shape]`.
        default_value: first value of a new key: a number, 'normal', 'truncated_normal', 'uniform',
            'xavier_uniform' (with both fans the row's size), 'zeros', 'ones', or an Initializer of
            one of these kinds.
        permit_filter_value: number of occurrences of a key in training by which it gets a row.
            Until then it reads `unknown_value` and is not trained. Default: 1.
        evict_filter_value: number of training steps after which a row that was not seen is evicted.
            Default: never.
        seed: seed of the first values. Default: 0.
        admission: as for `TableConfig`, instead of `permit_filter_value`. Default: by
            `permit_filter_value`.
        eviction: as for `TableConfig`, instead of `evict_filter_value`. Default: by
            `evict_filter_value`.
        unknown_value: as for `TableConfig`. Default: the number of `default_value`, zeros if that
            is a distribution.
        serving_unknown_value: as for `TableConfig`. Default: `unknown_value`.
        cache: as for `TableConfig`. Default: all rows in host memory.
        config: a `TableConfig` in place of the arguments above that describe the table; beside it
            only `value_shape` (of `config.dim` elements), `key_tensor` and `value_tensor` may be
            given.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: an argument is out of range, or an open table has the name and both have tiers
            below host memory, or a tier holds rows of an earlier run.
        OSError, RemoteError: a tier cannot be opened.

    A call takes the inputs of `get`.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import MapParameter
        >>> m = MapParameter(name="doc.map", value_shape=(3,), default_value="zeros")
        >>> m[Tensor([1, 2], ms.int32)] = Tensor([[1, 1, 1], [2, 2, 2]], ms.float32)
        >>> print(m.get(Tensor([1, 2, 3], ms.int32)))
        [[1. 1. 1.]
         [2. 2. 2.]
         [0. 0. 0.]]
        >>> _ = m.erase(Tensor([2, 3], ms.int32))
        >>> len(m), 1 in m, 2 in m
        (1, True, False)
    """

    def __init__(
        self,
        name: str | None = None,
        requires_grad: bool = True,
        *,
        key_dtype: Any = None,
        value_dtype: Any = None,
        value_shape: int | tuple[int, ...] | list[int] | None = None,
        key_tensor: Tensor | None = None,
        value_tensor: Tensor | None = None,
        default_value: Any = "normal",
        permit_filter_value: int = 1,
        evict_filter_value: int = sys.maxsize,
        seed: int = 0,
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        unknown_value: Any = None,
        serving_unknown_value: Any = None,
        cache: CacheConfig | None = None,
        config: TableConfig | None = None,
    ) -> None:
        check_described_once(describing_arguments(MapParameter.__init__, locals()), config)
        if config is not None:
            check_hash_config("MapParameter", config)
            name, key_dtype, value_dtype = config.name, config.key_dtype, config.value_dtype
            if value_shape is None and value_tensor is None:
                value_shape = config.dim
        if name is None:
            name = f"map_parameter_{next_number('map_parameter')}"
        if isinstance(name, TableConfig):
            raise TypeError("config must be given by its name, config=..., got it as name")
        if not isinstance(name, str) or not name:
            raise TypeError(f"name must be a non-empty str, got {name!r}")
        where = f"table '{name}': "
        _check_pair(name, key_tensor, value_tensor)
        key_dtype = _one_of(name, "key", key_dtype, key_tensor, ms.int32, (ms.int32, ms.int64))
        value_dtype = _one_of(name, "value", value_dtype, value_tensor, ms.float32, VALUE_DTYPES)
        shape = _value_shape(name, value_shape, value_tensor)
        dim = math.prod(shape)
        if config is None:
            row_initializer(default_value, fan_in=dim, fan_out=dim, argument="default_value")
            config = TableConfig(
                dim,
                name=name,
                key_dtype=key_dtype,
                value_dtype=value_dtype,
                initializer=default_value,
                seed=check_int(where + "seed", seed, 0, MAX_SEED),
                requires_grad=requires_grad,
                admission=admission_by_filter(where, admission, permit_filter_value),
                eviction=eviction_by_filter(where, eviction, evict_filter_value),
                unknown_value=unknown_value,
                serving_unknown_value=serving_unknown_value,
                cache=cache,
            )
        elif dim != config.dim:
            raise ValueError(
                f"{where}value_shape must have config.dim={config.dim} elements, got {shape}"
            )
        super().__init__(dataclasses.replace(config, name=name))
        self.value_shape = shape
        self.admission = EVERY_KEY if config.admission is None else config.admission
        self.eviction = config.eviction
        self._flat = len(shape) == 1
        self._slices: tuple[bool, np.ndarray, int] | None = None
        self._clones = 0
        self._range = ops.Range(1 << 40)
        self._zero = Tensor(0, ms.int64)
        self._one = Tensor(1, ms.int64)
        self._make_map_operators()
        if key_tensor is not None and value_tensor is not None:
            keys = np.ascontiguousarray(key_tensor.asnumpy())
            values = value_tensor.asnumpy().astype(np.float32, copy=False)
            self._synchronised().put_owned(keys, np.ascontiguousarray(values))

    # ---- the description, by upstream's names too

    @property
    def value_dtype(self) -> Any:
        """Dtype of the values."""
        return self.config.value_dtype

    @property
    def default_value(self) -> Any:
        """First value of a row: `config.initializer`."""
        return self.config.initializer

    @property
    def permit_filter_value(self) -> int:
        """Count of occurrences by which a key is admitted; 1 if admission is not by count."""
        count = self.admission.threshold if isinstance(self.admission, CountAdmission) else 1
        return 1 if count is None else count

    @property
    def evict_filter_value(self) -> int:
        """Number of steps after which an unseen row is evicted, `sys.maxsize` for never."""
        steps = None if self.eviction is None else self.eviction.max_idle_steps
        return sys.maxsize if steps is None or steps == -1 else steps

    @property
    def unknown_value(self) -> float | tuple[float, ...] | None:
        """Value that a key without a row reads, as given: `config.unknown_value`."""
        return self.config.unknown_value

    @property
    def serving_unknown_value(self) -> float | tuple[float, ...] | None:
        """Value that a key without a row reads in evaluation: `config.serving_unknown_value`."""
        return self.config.serving_unknown_value

    @property
    def seed(self) -> int:
        """Seed of the first values."""
        return self.config.seed or 0

    def _make_map_operators(self) -> None:
        zeros = ops.zeros_like

        # A graph is differentiated as a whole: what reaches the loss needs a gradient function.
        def put_bprop(key, value, descriptor, out, dout):  # type: ignore[no-untyped-def]
            return zeros(key), zeros(value), descriptor

        def key_bprop(key, descriptor, out, dout):  # type: ignore[no-untyped-def]
            return zeros(key), descriptor

        def size_bprop(descriptor, out, dout):  # type: ignore[no-untyped-def]
            return (descriptor,)

        def values_bprop(rows, descriptor, like, out, dout):  # type: ignore[no-untyped-def]
            return rows, descriptor, like

        def find_bprop(key, descriptor, like, out, dout):  # type: ignore[no-untyped-def]
            return zeros(key), descriptor, like

        self._find = custom_op("MsrFind", ms.float32, find_bprop)
        self._put = custom_op("MsrPut", ms.int32, put_bprop)
        self._erase = custom_op("MsrErase", ms.int32, key_bprop)
        self._contains = custom_op("MsrContains", ms.bool_, key_bprop)
        self._size = custom_op("MsrSize", ms.int64, size_bprop)
        self._keys = custom_op("MsrKeys", ms.int64, key_bprop)
        self._values = custom_op("MsrValues", ms.float32, values_bprop)
        for op in (self._map_get, self._find, self._put, self._erase, self._contains):
            op.takes_arrays(self.name, self.key_dtype == ms.int32)

    def __call__(self, key_tensor: Any) -> Any:
        """Return `get(key_tensor)`."""
        if isinstance(key_tensor, np.ndarray):  # which MindSpore's own call does not take
            return self.get(key_tensor)
        return super().__call__(key_tensor)

    def construct(self, key_tensor: Tensor) -> Tensor:
        """Return `get(key_tensor)`."""
        return self.get(key_tensor, True)

    def get(self, key_tensor: Tensor, insert_default_value: bool = True) -> Tensor:
        """Return the values of keys.

        Args:
            key_tensor: int32 or int64, any shape.
            insert_default_value: True: keys that have no row get one with their first value (once
                admitted), counted as a training occurrence; if an optimizer covers the table, the
                result is differentiable. False: the table does not change; keys without a row read
                `unknown_value`; no gradient flows.

        Returns:
            float32 Tensor `[*key_tensor.shape, *value_shape]`.
        """
        if isinstance(key_tensor, (int, float, tuple, list)):
            raise TypeError("key_tensor must be a Tensor, not a Python number, tuple or list")
        if insert_default_value:
            rows = self._map_get(key_tensor, self.descriptor, self.like, self.anchor)[0]
        else:
            rows = self._find(key_tensor, self.descriptor, self.like)
        return rows if self._flat else rows.reshape(key_tensor.shape + self.value_shape)

    def put(self, key_tensor: Tensor, value_tensor: Tensor | float) -> MapParameter:
        """Set the values of keys without regard to admission; of a key given twice the last stays.

        With a cache, more keys than a quarter of its host rows are stored a part at a time: if a
        tier fails, the message says how many, in the order given, were stored.

        Args:
            key_tensor: int32 or int64, any shape.
            value_tensor: float32 `[*key_tensor.shape, *value_shape]`, or a number for all.

        Returns:
            This MapParameter.
        """
        if isinstance(value_tensor, (int, float)):
            value_tensor = ops.fill(ms.float32, key_tensor.shape + (self.dim,), value_tensor)
        self._put(key_tensor, value_tensor, self.descriptor)
        return self

    def erase(self, key_tensor: Tensor) -> MapParameter:
        """Remove keys with value, optimizer state and count; absent ones are passed over.

        With a cache, more keys than a quarter of its host rows are erased a part at a time: if a
        tier fails, the message says how many, in the order given, were erased.
        """
        self._erase(key_tensor, self.descriptor)
        return self

    def contains(self, key_tensor: Tensor) -> Tensor:
        """Return whether keys have a row: bool Tensor of the keys' shape."""
        if isinstance(key_tensor, (int, float, tuple, list)):
            raise TypeError("key_tensor must be a Tensor, not a Python number, tuple or list")
        return self._contains(key_tensor, self.descriptor)

    def size(self) -> Tensor:
        """Return the number of rows: int64 Tensor `[1]`."""
        return self._size(self.descriptor)

    def get_keys(self) -> Tensor:
        """Return all keys: Tensor `[n]` of the key dtype, in the order of `get_values`."""
        return ops.cast(self._keys(self._rows(), self.descriptor), self.key_dtype)

    def get_values(self) -> Tensor:
        """Return all values: float32 Tensor `[n, *value_shape]`, in the order of `get_keys`."""
        values = self._values(self._rows(), self.descriptor, self.like)
        return values if self._flat else values.reshape((-1, *self.value_shape))

    def get_data(self) -> tuple[Tensor, Tensor]:
        """Return all keys and values."""
        return self.get_keys(), self.get_values()

    def _rows(self) -> Tensor:
        # One element per row: shape inference learns a length that the data decides in no other
        # way.
        return self._range(self._zero, self._size(self.descriptor).reshape(()), self._one)

    def __getitem__(self, key_tensor: Tensor) -> Tensor:
        return self.get(key_tensor, True)

    def __setitem__(self, key_tensor: Tensor, value_tensor: Tensor | float) -> None:
        self.put(key_tensor, value_tensor)

    def __contains__(self, key: Any) -> Any:
        if isinstance(key, int):
            key = Tensor([key], self.key_dtype)
        return self.contains(key)

    def __len__(self) -> Any:
        return self.size()

    def __bool__(self) -> bool:
        # Without this an empty table would be falsy, as an empty list is.
        return True

    def __deepcopy__(self, memo: Any) -> MapParameter:
        raise TypeError(f"table '{self.name}': cannot be copied with its rows; use clone()")

    def __repr__(self) -> str:
        try:
            state = f"rows={self._synchronised().stats()['rows']}"
        except TableClosedError:
            state = "closed"
        except RuntimeError:  # from check_not_replaced()
            state = "replaced by a newer table"
        return (
            f"MapParameter(name={self.name!r}, key_dtype={self.key_dtype}, "
            f"value_shape={self.value_shape}, {state})"
        )

    def export_data(self, incremental: bool = False) -> ExportedData:
        """Return keys, values and statuses as NumPy arrays.

        Args:
            incremental: False: every row, with status 0 (unchanged). True: what changed since the
                last export (everything, the first time): status 1 (modified), then keys with status
                2 (erased or evicted), for which there is no row among the values. A row counts as
                modified when it was put, trained, or looked up in training. It must be False over
                several workers, whose changes `RecCheckpoint` writes.

        Returns:
            keys `[n]` of the key dtype, values float32 `[number of rows, *value_shape]`,
            statuses int32 `[n]`.
        """
        native, mark = self._synchronised(), self.marks.held(_EXPORT)
        self._check_incremental(incremental)
        if incremental and mark is not None:
            exported = self._pack(native.export_since(mark), MODIFIED)
        else:
            exported = self._pack(native.export_all(), MODIFIED if incremental else UNCHANGED)
        self.marks.hold(_EXPORT, self.marks.new())
        return exported

    def export_bytes(self, incremental: bool = False) -> tuple[bytes, bytes, bytes]:
        """Return the arrays of `export_data` as bytes, in native byte order."""
        keys, values, statuses = self.export_data(incremental)
        return keys.tobytes(), values.tobytes(), statuses.tobytes()

    def export_slice_data(
        self, incremental: bool = False, slice_bytes: int = SLICE_BYTES
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """Return the next slice of `export_data`; call until the last element is True.

        The keys are as of the first call, the values as of the call that returns them.

        Args:
            incremental: as for `export_data`; the same in every call of one export.
            slice_bytes: bytes of values in a slice, at least one row's. Default: 1 GiB.

        Returns:
            keys, values, statuses, and whether this was the last slice.
        """
        if slice_bytes < 1:
            raise ValueError(f"table '{self.name}': slice_bytes must be >= 1, got {slice_bytes}")
        self._check_incremental(incremental)
        if self._slices is None:
            mark = self.marks.held(_EXPORT)
            if incremental and mark is not None:
                keys = self._synchronised().export_since(mark)["keys"]
            else:
                keys = self._synchronised().keys()
            self._slices = (incremental, keys, 0)
            self.marks.hold(_EXPORT, self.marks.new())
        begun_incremental, keys, start = self._slices
        if begun_incremental != incremental:
            raise ValueError(
                f"table '{self.name}': incremental must stay {begun_incremental} to the last slice"
            )
        stop = start + max(1, slice_bytes // (4 * self.dim))
        last = stop >= len(keys)
        part = self._synchronised().export_keys_of_all(keys[start:stop])
        self._slices = None if last else (incremental, keys, stop)
        return (*self._pack(part, MODIFIED if incremental else UNCHANGED), last)

    def import_data(self, data: ExportedData) -> None:
        """Set rows from `export_data`, and erase keys whose status is 2 (erased).

        Args:
            data: keys `[n]`, values (one row a key that is not erased), statuses `[n]`.

        Raises:
            ValueError: the lengths do not fit; the table is then as it was.
        """
        if len(data) != 3:
            raise ValueError(
                f"table '{self.name}': data must be (keys, values, statuses), got {len(data)} parts"
            )
        keys, values, statuses = (np.asarray(part) for part in data)
        if keys.dtype not in (np.int32, np.int64):
            raise TypeError(f"table '{self.name}': keys must be int32 or int64, got {keys.dtype}")
        if values.dtype != np.float32:
            raise TypeError(f"table '{self.name}': values must be float32, got {values.dtype}")
        if keys.ndim != 1 or statuses.shape != keys.shape:
            raise ValueError(
                f"table '{self.name}': keys and statuses must have the same shape [n], "
                f"got {keys.shape} and {statuses.shape}"
            )
        if not np.isin(statuses, (UNCHANGED, MODIFIED, ERASED)).all():
            raise ValueError(
                f"table '{self.name}': statuses must be 0 (unchanged), 1 (modified) or 2 (erased), "
                f"got {np.unique(statuses).tolist()}"
            )
        if self.key_dtype == ms.int32 and not np.array_equal(keys.astype(np.int32), keys):
            raise ValueError(
                f"table '{self.name}': keys must be in [-2**31, 2**31), the range of int32"
            )
        present = statuses != ERASED
        rows = int(present.sum())
        if values.size != rows * self.dim or len(values) != rows:
            raise ValueError(
                f"table '{self.name}': values must have shape {(rows, *self.value_shape)}, "
                f"one row a key that is not erased, got {values.shape}"
            )
        kept = np.ascontiguousarray(keys[present], np.int64)
        self._synchronised().import_all(
            kept, np.ascontiguousarray(values, np.float32).reshape(rows, self.dim)
        )
        if rows < len(keys):
            self._synchronised().erase(np.ascontiguousarray(keys[~present], np.int64))
        self.keep_rows()

    def _check_incremental(self, incremental: bool) -> None:
        if incremental and self._table.workers > 1:
            raise ValueError(
                f"table '{self.name}': incremental must be False over several workers, each of "
                "which knows its own changes: RecCheckpoint writes all workers' changes as deltas"
            )

    def clone(self, init: Any = "same") -> MapParameter:
        """Return an empty MapParameter of the same description under a new name, `<name>.clone<n>`.

        With tiers it has its own, of the same sizes and in the same places.

        Args:
            init: first value of the clone's rows, as `initializer` of `TableConfig`, or 'same' for
                the initializer of this table. Default: 'same'.
        """
        if not (isinstance(init, str) and init == "same"):
            row_initializer(init, fan_in=self.dim, fan_out=self.dim, argument="init")
            changes: dict[str, Any] = {"initializer": init}
        else:
            changes = {}
        self._clones += 1
        config = dataclasses.replace(
            self.config,
            name=f"{self.name}.clone{self._clones}",
            requires_grad=self.requires_grad,
            eviction=self.eviction,
            **changes,
        )
        return MapParameter(config=config, value_shape=self.value_shape)

    def _pack(self, rows: dict[str, np.ndarray], status: int) -> ExportedData:
        present = rows["present"]
        keys, values = rows["keys"], rows["values"]
        if not present.all():
            keys = np.concatenate([keys[present], keys[~present]])
            values = values[present]
        statuses = np.full(len(keys), ERASED, np.int32)
        statuses[: len(values)] = status
        key_type = np.int32 if self.key_dtype == ms.int32 else np.int64
        return keys.astype(key_type), values.reshape((-1, *self.value_shape)), statuses


def _check_pair(name: str, key_tensor: Tensor | None, value_tensor: Tensor | None) -> None:
    if (key_tensor is None) != (value_tensor is None):
        raise ValueError(
            f"table '{name}': key_tensor and value_tensor must be given together or not at all"
        )
    if key_tensor is None or value_tensor is None:
        return
    if key_tensor.ndim != 1 or value_tensor.ndim < 2 or len(key_tensor) != len(value_tensor):
        raise ValueError(
            f"table '{name}': key_tensor must be [n] and value_tensor [n, *value_shape], "
            f"got {key_tensor.shape} and {value_tensor.shape}"
        )


def _one_of(
    name: str, what: str, wanted: Any, tensor: Tensor | None, default: Any, legal: tuple[Any, ...]
) -> Any:
    if wanted is not None and tensor is not None and wanted != tensor.dtype:
        raise ValueError(
            f"table '{name}': {what}_dtype and {what}_tensor.dtype must be the same, "
            f"got {wanted} and {tensor.dtype}"
        )
    chosen = wanted if wanted is not None else default if tensor is None else tensor.dtype
    if chosen not in legal:
        names = " or ".join(str(dtype) for dtype in legal)
        raise TypeError(f"table '{name}': {what}_dtype must be {names}, got {chosen}")
    return chosen


def _value_shape(name: str, value_shape: Any, tensor: Tensor | None) -> tuple[int, ...]:
    if isinstance(value_shape, numbers.Integral):
        value_shape = (value_shape,)
    if value_shape is not None:
        where = f"table '{name}': value_shape"
        if not isinstance(value_shape, (tuple, list)):
            raise TypeError(
                f"{where} must be an int, or a tuple or list of ints, got {value_shape!r}"
            )
        value_shape = tuple(check_int(where, n, 1, MAX_DIM) for n in value_shape)
        if not value_shape:
            raise ValueError(f"{where} must have at least one dimension, got ()")
    if tensor is not None:
        if value_shape is not None and value_shape != tuple(tensor.shape[1:]):
            raise ValueError(
                f"table '{name}': value_shape and value_tensor.shape[1:] must be the same, "
                f"got {value_shape} and {tuple(tensor.shape[1:])}"
            )
        value_shape = tuple(tensor.shape[1:])
    shape: tuple[int, ...] = value_shape if value_shape is not None else (1,)
    if math.prod(shape) > MAX_DIM:
        raise ValueError(
            f"table '{name}': value_shape must have at most {MAX_DIM} elements, got {shape}"
        )
    return shape
