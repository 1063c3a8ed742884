# SPDX-License-Identifier: Apache-2.0
"""HashTable: a growing table as a parameter, with the interface of MindSpore's MapParameter."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from mindspore_rec.common.rows.policies import CountAdmission
from mindspore_rec.common.rows.table_scope import next_number
from mindspore_rec.train.graph.operators import TableClosedError, custom_op
from mindspore_rec.train.parameter import graph_syntax  # noqa: F401  (makes m[k] work in a graph)
from mindspore_rec.train.parameter.dynamics import DynamicTable
from mindspore_rec.train.parameter.initializers import row_initializer
from mindspore_rec.train.parameter.start_values import check_pair, one_dtype, shape_of_value
from mindspore_rec.train.parameter.table_config import EVERY_KEY, VALUE_DTYPES, TableConfig
from mindspore_rec.train.parameter.upstream import check_hash_config

SLICE_BYTES = 1 << 30
_EXPORT = "export"  # holder of the mark of incremental exports
UNCHANGED, MODIFIED, ERASED = 0, 1, 2


ExportedData = tuple[np.ndarray, np.ndarray, np.ndarray]


class HashTable(DynamicTable):
    """A hash table as part of a network: it maps int keys to rows, and adds a row for a new key.

    The table works inside `construct`, in graph mode and PyNative mode, and outside `construct`.
    Every key of the key dtype is legal. The initial value of a row depends only on `(seed, name,
    key)`.

    The table is an `nn.Cell` that owns a Parameter. Arguments and results of methods are float32
    values, for every value dtype. `put` and `erase` return the table. In a graph, write
    `self.map[key] = value`. The compiler cannot assign through a local name (`m = self.map`, then
    `m[key] = value`), but `m.put(key, value)` works. To freeze a table, set `requires_grad` of the
    table, not of its Parameter. All lookups of a frozen table, even `get`, leave the table
    unchanged. Outside a graph, keys and values may be NumPy arrays, with int32 or int64 keys and
    float32 values. If the key dtype is int32, Tensors of keys must be int32, and int64 arrays must
    contain only keys in the range of int32.

    Args:
        config: description of the table, without `vocab_size`. The default name is
            `map_parameter_<n>`.
        value_shape: shape of one value, with `config.embedding_dim` elements in total. Default: one
            dimension.
        key_tensor: initial keys, int32 or int64 `[n]`. Default: none.
        value_tensor: values of the initial keys, `[n, *value_shape]` of the value dtype. Default:
            none.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: an argument is out of range, or a tier contains rows of an earlier run.
            ValueError is also raised if an open table has the same name and both tables have tiers
            below host memory.
        OSError, RemoteError: a tier cannot be opened.

    Calling the table calls `get`. `MapParameter` is a HashTable with MindSpore's arguments.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import TableConfig
        >>> from mindspore_rec.parameter import HashTable
        >>> table = HashTable(TableConfig(3, name="doc.hash_table", initializer="zeros"))
        >>> table[Tensor([1, 2])] = Tensor([[1, 1, 1], [2, 2, 2]], ms.float32)
        >>> print(table.get(Tensor([1, 2, 3])))
        [[1. 1. 1.]
         [2. 2. 2.]
         [0. 0. 0.]]
        >>> len(table), 1 in table, 4 in table
        (3, True, False)
    """

    def __init__(
        self,
        config: TableConfig,
        *,
        value_shape: int | tuple[int, ...] | list[int] | None = None,
        key_tensor: Tensor | None = None,
        value_tensor: Tensor | None = None,
    ) -> None:
        if not isinstance(config, TableConfig):
            raise TypeError(f"config must be a TableConfig, got {config!r}")
        check_hash_config(type(self).__name__, config)
        name = config.name
        if name is None:
            name = f"map_parameter_{next_number('map_parameter')}"
        check_pair(name, key_tensor, value_tensor)
        one_dtype(name, "key", config.key_dtype, key_tensor, ms.int32, (ms.int32, ms.int64))
        one_dtype(name, "value", config.value_dtype, value_tensor, ms.float32, VALUE_DTYPES)
        if value_shape is None and value_tensor is None:
            value_shape = config.embedding_dim
        shape = shape_of_value(name, value_shape, value_tensor)
        if math.prod(shape) != config.embedding_dim:
            raise ValueError(
                f"table '{name}': value_shape must have config.embedding_dim="
                f"{config.embedding_dim} elements, got {shape}"
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
        """Initial value of a row: `config.initializer`."""
        return self.config.initializer

    @property
    def permit_filter_value(self) -> int:
        """Threshold of the `CountAdmission`; 1 if the table has another admission policy."""
        count = self.admission.threshold if isinstance(self.admission, CountAdmission) else 1
        return 1 if count is None else count

    @property
    def evict_filter_value(self) -> int:
        """Number of idle steps after which a row is evicted; `sys.maxsize` means never."""
        steps = None if self.eviction is None else self.eviction.max_idle_steps
        return sys.maxsize if steps is None or steps == -1 else steps

    @property
    def unknown_value(self) -> float | tuple[float, ...] | None:
        """Value of a key without a row: `config.unknown_value`; None means the default value."""
        return self.config.unknown_value

    @property
    def serving_unknown_value(self) -> float | tuple[float, ...] | None:
        """In evaluation, the value of a key without a row; None if not set."""
        return self.config.serving_unknown_value

    @property
    def seed(self) -> int:
        """Seed of the rows' initial values."""
        return self.config.seed or 0

    def _make_map_operators(self) -> None:
        zeros = ops.zeros_like

        # A graph is differentiated as a whole, so every operator on which the loss depends needs a
        # gradient function.
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

        self._find = custom_op("MsrFind", ms.float32, find_bprop, table=self.name)
        self._put = custom_op("MsrPut", ms.int32, put_bprop, table=self.name)
        self._erase = custom_op("MsrErase", ms.int32, key_bprop, table=self.name)
        self._contains = custom_op("MsrContains", ms.bool_, key_bprop, table=self.name)
        self._size = custom_op("MsrSize", ms.int64, size_bprop, table=self.name)
        self._keys = custom_op("MsrKeys", ms.int64, key_bprop, table=self.name)
        self._values = custom_op("MsrValues", ms.float32, values_bprop, table=self.name)
        for op in (self._map_get, self._find, self._put, self._erase, self._contains):
            op.takes_arrays(self.name, self.key_dtype == ms.int32)

    def __call__(self, key_tensor: Any) -> Any:
        """Return `get(key_tensor)`."""
        if isinstance(key_tensor, np.ndarray):  # MindSpore's own call refuses arrays
            return self.get(key_tensor)
        return super().__call__(key_tensor)

    def construct(self, key_tensor: Tensor) -> Tensor:
        """Return `get(key_tensor)`."""
        return self.get(key_tensor, True)

    def get(self, key_tensor: Tensor, insert_default_value: bool = True) -> Tensor:
        """Return the values of keys.

        Args:
            key_tensor: keys of any shape: int32, or int64 if the key dtype is int64.
            insert_default_value: True for a training lookup, which counts keys and inserts a row
                with the initial value for each admitted key without a row. The result is
                differentiable if an optimizer trains the table. If `insert_default_value` is False,
                the call is a read, which leaves the table unchanged and has no gradient. For a key
                without a row, the result of a read is `serving_unknown_value`, or `unknown_value`
                if `serving_unknown_value` is not set. Default: True.

        Returns:
            float32 Tensor `[*key_tensor.shape, *value_shape]`.

        Raises:
            TypeError: `key_tensor` is a Python number, tuple or list.
        """
        if isinstance(key_tensor, (int, float, tuple, list)):
            raise TypeError("key_tensor must be a Tensor, not a Python number, tuple or list")
        if insert_default_value:
            rows = self._map_get(key_tensor, self.descriptor, self.like, self.anchor)[0]
        else:
            rows = self._find(key_tensor, self.descriptor, self.like)
        return rows if self._flat else rows.reshape(key_tensor.shape + self.value_shape)

    def put(self, key_tensor: Tensor, value_tensor: Tensor | float | np.number) -> HashTable:
        """Set the values of keys, regardless of admission; a repeated key gets its last value.

        If the table has a cache, a call with many keys (more than a quarter of the cache's host
        rows) stores the keys in several parts, in order. If a tier fails, the error message
        contains the number of stored keys.

        Args:
            key_tensor: keys of any shape: int32, or int64 if the key dtype is int64.
            value_tensor: float32 `[*key_tensor.shape, *value_shape]`, or one number for all keys:
                a Python number or a NumPy scalar.

        Returns:
            This table.

        Raises:
            TypeError: `key_tensor` is a Python number, tuple or list, or `value_tensor` is a
                complex number.
        """
        if isinstance(key_tensor, (int, float, tuple, list)):
            raise TypeError("key_tensor must be a Tensor, not a Python number, tuple or list")
        if isinstance(value_tensor, (complex, np.complexfloating)):
            raise TypeError(f"value_tensor must be real numbers, got {value_tensor}")
        if isinstance(value_tensor, (int, float, np.integer, np.floating)):
            value_tensor = ops.fill(ms.float32, key_tensor.shape + (self.dim,), value_tensor)
        self._put(key_tensor, value_tensor, self.descriptor)
        return self

    def erase(self, key_tensor: Tensor) -> HashTable:
        """Remove keys with their values, optimizer states and counts; ignore absent keys.

        If the table has a cache, a call with many keys (more than a quarter of the cache's host
        rows) erases the keys in several parts, in order. If a tier fails, the error message
        contains the number of erased keys.
        """
        self._erase(key_tensor, self.descriptor)
        return self

    def contains(self, key_tensor: Tensor) -> Tensor:
        """Return a bool Tensor of the keys' shape, True for each key with a row.

        Raises:
            TypeError: `key_tensor` is a Python number, tuple or list.
        """
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
        # Shape inference can learn a data-dependent length only from `ops.Range`, so the method
        # makes a range with one element per row.
        return self._range(self._zero, self._size(self.descriptor).reshape(()), self._one)

    def __getitem__(self, key_tensor: Tensor) -> Tensor:
        return self.get(key_tensor, True)

    def __setitem__(self, key_tensor: Tensor, value_tensor: Tensor | float | np.number) -> None:
        self.put(key_tensor, value_tensor)

    def __contains__(self, key: Any) -> Any:
        if isinstance(key, int):
            key = Tensor([key], self.key_dtype)
        return self.contains(key)

    def __len__(self) -> Any:
        return self.size()

    def __bool__(self) -> bool:
        # Without `__bool__`, an empty table would be falsy, like an empty list.
        return True

    def __deepcopy__(self, memo: Any) -> HashTable:
        raise TypeError(f"table '{self.name}': cannot be copied with its rows; use clone()")

    def __repr__(self) -> str:
        try:
            state = f"rows={self._synchronised().stats()['rows']}"
        except TableClosedError:
            state = "closed"
        except RuntimeError:  # from check_not_replaced()
            state = "replaced by a newer table"
        return (
            f"{type(self).__name__}(name={self.name!r}, key_dtype={self.key_dtype}, "
            f"value_shape={self.value_shape}, {state})"
        )

    def export_data(self, incremental: bool = False) -> ExportedData:
        """Return keys, values and statuses as NumPy arrays.

        Args:
            incremental: False to export every row, with status 0 (unchanged). True to export the
                changes since the last export; the first export contains all rows. Rows with status
                1 (modified) come first. Keys with status 2 (erased or evicted) come last and have
                no values. A row counts as modified if it was set by `put`, updated by a step, or
                looked up in training. With several workers, `incremental` must be False;
                `RecCheckpoint` writes the changes of all workers. Default: False.

        Returns:
            keys, `[n]` of the key dtype; values, float32 `[number of rows, *value_shape]`; and
            statuses, int32 `[n]`.

        Raises:
            ValueError: `incremental` is True, and there are several workers.
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
        """Return the next slice of `export_data`; repeat the call until the last result is True.

        The first call determines the keys of all slices. Each call reads the current values of one
        slice.

        Args:
            incremental: True to export only changes, as in `export_data`; must be the same in every
                call of one export.
            slice_bytes: maximum bytes of values in a slice; a slice has at least one row. Default:
                1 GiB.

        Returns: keys, values, statuses, and True for the last slice.

        Raises:
            ValueError: `slice_bytes` is less than 1; `incremental` differs from the earlier calls
                of the same export; or `incremental` is True, and there are several workers.
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
        """Set rows from the result of `export_data`, and erase keys whose status is 2 (erased).

        Args:
            data: a tuple of keys `[n]`, values (one row for each key that is not erased) and
                statuses `[n]`.

        Raises:
            TypeError: keys are not int32 or int64, or values are not float32.
            ValueError: shapes do not match, a status is unknown, or a key is outside the range of
                the key dtype.

        After a TypeError or ValueError, the table is unchanged.
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

    def clone(self, init: Any = "same") -> HashTable:
        """Return an empty table with this table's description and a new name, `<name>.clone<n>`.

        The new table has its own tiers, with the sizes and locations of this table's tiers.

        Args:
            init: initial values of the clone's rows: any `initializer` of `TableConfig`, or 'same'
                for this table's initializer. Default: 'same'.

        Raises:
            TypeError, ValueError: `init` is not a legal initializer.
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
        return self._like(config)

    def _like(self, config: TableConfig) -> HashTable:
        """Return a new table that `config` describes, with the same value shape as this table."""
        return HashTable(config, value_shape=self.value_shape)

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
