# SPDX-License-Identifier: Apache-2.0
"""TableParameter: a native table, hash or static, as a parameter of a network."""

from __future__ import annotations

import gc
import os
import weakref
from typing import Any, SupportsIndex

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.graph.api import _pynative_executor

from mindspore_rec import _native
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.rows.host_table import HostTable
from mindspore_rec.common.rows.table_scope import current_scope
from mindspore_rec.common.tiers.attach import attach
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.train.graph.operators import NameTakenError, custom_op
from mindspore_rec.train.parameter.anchor import new_anchor
from mindspore_rec.train.parameter.device_cache import DeviceTier
from mindspore_rec.train.parameter.marks import ChangeMarks
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.table_training import TableTraining

COMBINERS = {"sum": 0, "mean": 1, "sqrtn": 2}


_open: weakref.WeakValueDictionary[int, TableParameter] = weakref.WeakValueDictionary()
# In a forked child, the parent's tables are not open, so the tables' names can be used again.
os.register_at_fork(after_in_child=_open.clear)


def open_tables(name: str, all_scopes: bool = False) -> list[TableParameter]:
    """Return the open tables with a name, in no fixed order; omit tables that no object refers to.

    Args:
        name: name to search for.
        all_scopes: True for tables of all name scopes, False for tables of the current name scope.
            Default: False.
    """
    scope = None if all_scopes else current_scope()
    named = _named(name, scope)
    if not named:
        return named
    del named
    gc.collect()  # frees unused networks, whose cells are in reference cycles
    return _named(name, scope)


def _named(name: str, scope: int | None) -> list[TableParameter]:
    # Loop over a copy of the references: other threads may make tables during the loop.
    tables = [reference() for reference in _open.valuerefs()]
    return [
        table
        for table in tables
        if table is not None
        and table.name == name
        and scope in (None, table._table_scope)
        and table._finalizer.alive
    ]


def _new_table(config: TableConfig) -> _native.Table:
    """Return a new native table that a config describes, with the tiers of the config's cache."""
    table = _named_table(config)
    if config.cache is not None:
        try:
            group = worker_group()
            attach(table, config.cache, group.rank, group.size)
        except BaseException:
            table.close()
            raise
    return table


def _named_table(config: TableConfig) -> _native.Table:
    arguments = {**config.native_arguments(), "scope": current_scope()}
    if current_scope():
        _check_replaceable(config)  # tiers have no scopes
    worker_group()  # with a launcher, the table spans all workers, which must be connected first
    try:
        return _native.Table(**arguments)
    except NameTakenError:
        _check_replaceable(config)
    # If a notebook runs `net = Net()` twice, `net` still refers to the older network during the
    # construction of the newer network. The older network's table keeps its rows, but a use of the
    # older network raises an error.
    return _native.Table(**arguments, replace=True)


def _check_replaceable(config: TableConfig) -> None:
    """Raise NameTakenError if an open table has the same name and both tables have lower tiers.

    A table's name determines the place of the table's lower tier: a directory, or keys on a server.
    """
    for older in open_tables(config.name or "", all_scopes=True):
        if _has_lower_tier(config.cache) and _has_lower_tier(older.cache):
            raise NameTakenError(
                f"name '{older.name}' is already used by an open table, whose rows are in tiers "
                "below memory, where a second table of that name would write too; close the older "
                "network's tables first, `for table in mindspore_rec.tables_of(older_net): "
                "table.close()`, or choose another name"
            )


def _has_lower_tier(cache: CacheConfig | None) -> bool:
    return cache is not None and cache.has_lower_tier


class TableParameter(HostTable, TableTraining, nn.Cell):
    """A native table as part of a network: base class of `MapParameter` and `StaticParameter`.

    The native core stores the rows. The network contains a one-element Parameter, the *anchor*,
    through which optimizers find the table (`anchor.mindspore_rec_table`). The anchor's gradient
    makes the graph compute all gradients of the table before the table's optimizer step. The
    anchor's gradient also serves as a token: if arithmetic has changed the token's value, the
    optimizer step raises an error.

    If two tables have the same name, the newer table is used, so a notebook cell that constructs a
    network can run twice. The older table keeps its rows. As long as the newer table is open, any
    use of the older table raises RuntimeError. If two tables with the same name would both have
    rows in tiers below host memory, the constructor of the newer table raises ValueError. Networks
    that a predictor makes have a separate name scope.

    Attributes:
        anchor: the Parameter that represents the table in `net.trainable_params()`.
        config: the `TableConfig` of the table, including the name.
        descriptor: int64 Tensor `[7]` from `make_descriptor`. `descriptor` tells operators which
            table to use.
        key_dtype: dtype of the keys, `int32` or `int64`; a table with int32 keys refuses int64 ids.
        dim: number of floats in a row.
        cache: the CacheConfig, or None if all rows are in host memory.
        device: the `DeviceTier`, or None if no rows are on the device.
        marks: the `ChangeMarks` of the table; the table records changes since the oldest mark.
    """

    def __init__(self, config: TableConfig) -> None:
        super().__init__(auto_prefix=False)
        self.config = config
        self._table_scope = current_scope()
        self.key_dtype = config.key_dtype
        self.cache = config.cache
        table = _new_table(config)
        self._table = table
        self._table_name = table.name
        self._rows_given: int | None = None  # step at which its rows were last set or kept
        self.dim = table.dim
        self._finalizer = weakref.finalize(self, table.close)
        _open[id(self)] = self
        self.marks = ChangeMarks(table)
        self.descriptor = self.make_descriptor()
        self.like = Tensor(np.zeros(table.dim, np.float32))
        self.anchor = new_anchor(self, table.name, config.requires_grad)
        table.set_trainable(config.requires_grad)
        self._no_weights = Tensor(np.zeros(1, np.float32))
        self._no_offsets = Tensor(np.zeros(1, np.int64))
        self._make_operators()
        self.device: DeviceTier | None = None
        if self.cache is not None and self.cache.device_rows is not None:
            unknown = np.asarray(config.native_arguments().get("unknown_value", 0.0), np.float32)
            self.device = DeviceTier(
                table, self.cache.device_rows, self.cache.policy, self.descriptor, unknown
            )

    def _make_operators(self) -> None:
        accumulate = custom_op("MsrAccumulate", ms.float32)
        refuse = custom_op("MsrRefuseGradient", ms.float32)
        zeros = ops.zeros_like

        # For a constant input, a gradient function may return the input itself, because nothing
        # reads the gradient of a constant. The gradient of ids must be zero, because MindSpore
        # passes this gradient on to floats from which the ids were computed.
        def lookup_bprop(ids, descriptor, like, anchor, out, dout):  # type: ignore[no-untyped-def]
            return zeros(ids), descriptor, like, accumulate(dout[0], out[1], descriptor)

        def pool_bprop(  # type: ignore[no-untyped-def]
            ids, offsets, weights, descriptor, like, anchor, out, dout
        ):
            token = accumulate(dout[0], out[1], descriptor)
            return zeros(ids), zeros(offsets), zeros(weights), descriptor, like, token

        # Differentiating a lookup in evaluation mode raises an error, because the table would not
        # learn.
        def eval_bprop(ids, descriptor, like, anchor, out, dout):  # type: ignore[no-untyped-def]
            return zeros(ids), descriptor, like, refuse(dout, descriptor)

        def pool_eval_bprop(  # type: ignore[no-untyped-def]
            ids, offsets, weights, descriptor, like, anchor, out, dout
        ):
            token = refuse(dout, descriptor)
            return zeros(ids), zeros(offsets), zeros(weights), descriptor, like, token

        name = self.name
        rows_and_ticket = (ms.float32, ms.int64)
        self._lookup_train = custom_op(
            "MsrLookupTrain", rows_and_ticket, lookup_bprop, table=name, multi_output=True
        )
        self._map_get = custom_op(
            "MsrMapGet", rows_and_ticket, lookup_bprop, table=name, multi_output=True
        )
        self._lookup_eval = custom_op("MsrLookupEval", ms.float32, eval_bprop, table=name)
        # Lookup operators that return bfloat16 rows and receive bfloat16 gradients.
        self._narrow_train = custom_op(
            "MsrLookupTrain", (ms.bfloat16, ms.int64), lookup_bprop, table=name, multi_output=True
        )
        self._narrow_eval = custom_op("MsrLookupEval", ms.bfloat16, eval_bprop, table=name)
        self._pool_train = custom_op(
            "MsrPoolTrain", rows_and_ticket, pool_bprop, table=name, multi_output=True
        )
        self._pool_eval = custom_op("MsrPoolEval", ms.float32, pool_eval_bprop, table=name)

    def refuse_device(self, cell: str) -> None:
        """If rows are in device memory that the host cannot read, raise ValueError.

        On the CPU, no error is raised, because the device tier shares the host's memory.

        Args:
            cell: name of the cell that reads rows on the host, for the error message.
        """
        if self.device is not None and not self.device.shared:
            raise ValueError(
                f"table '{self.name}': device_rows must be None for a table of {cell}, which "
                "combines rows on the host"
            )

    def make_descriptor(
        self,
        padding_key: int | None = None,
        combiner: str = "sum",
        weighted: bool = False,
        faae_coefficient: int = 1,
    ) -> Tensor:
        """Return a lookup descriptor: a Tensor from which operators read the settings of a lookup.

        Args:
            padding_key: id whose lookup returns zeros and trains no row. Default: none.
            combiner: way to combine the rows of a bag, 'sum', 'mean' or 'sqrtn'. Default: 'sum'.
            weighted: whether ids have weights. Default: False.
            faae_coefficient: number that each occurrence of an id adds to the id's count, for
                admission and for eviction by frequency. Default: 1.

        Returns: int64 Tensor `[7]`: id of the table, 1 if there is a padding key, padding key, code
            of the combiner, 1 if ids have weights, 1 if keys are int32, `faae_coefficient`.
        """
        return Tensor(
            np.array(
                [
                    self._table.id,
                    int(padding_key is not None),
                    0 if padding_key is None else padding_key,
                    COMBINERS[combiner],
                    int(weighted),
                    int(self.key_dtype == ms.int32),
                    faae_coefficient,
                ],
                np.int64,
            )
        )

    def _synchronised(self) -> _native.Table:
        # Wait for the step's operations, because in PyNative mode, an export right after a step
        # would miss the step's changes.
        self.sync()
        self.check_not_replaced()
        return self._table

    def sync(self) -> None:
        """Wait for all pending operations of the table, and copy changed rows to the host.

        All methods that read or change the table outside a graph call `sync` first. PyNative mode
        runs operators asynchronously. If the table has rows on a device other than the CPU, rows
        that changed on the device are copied to the host.
        """
        _pynative_executor.sync()
        if self.device is not None and not self.device.shared:
            self.device.sync()

    def check_not_replaced(self) -> None:
        """Raise RuntimeError if a newer open table has the name of this table."""
        self._table.check_not_replaced()

    @property
    def requires_grad(self) -> bool:
        """True if training changes the table; False for a frozen table, which lookups only read."""
        return bool(self.anchor.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if "_table" in self.__dict__:  # nn.Cell's constructor runs before there is an anchor
            self.anchor.requires_grad = value
            self._table.set_trainable(value)

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Do nothing: a cell that contains the table does not change the table's name."""

    def lookup_train(self, ids: Tensor, descriptor: Tensor, narrow: bool = False) -> Tensor:
        """Do a training lookup, which inserts and counts keys; return the rows `[*ids.shape, dim]`.

        The rows are float32, or bfloat16 if `narrow` is True. `narrow` requires a table with
        bfloat16 values.
        """
        if self.device is not None:
            rows = self.device.lookup(ids, descriptor, self.anchor)
            return ops.cast(rows, ms.bfloat16) if narrow else rows
        if narrow:
            return self._narrow_train(ids, descriptor, self.like, self.anchor)[0]
        return self._lookup_train(ids, descriptor, self.like, self.anchor)[0]

    def lookup_eval(self, ids: Tensor, descriptor: Tensor, narrow: bool = False) -> Tensor:
        """Do a lookup that does not change the table; return the rows as `lookup_train` does."""
        if narrow:
            return self._narrow_eval(ids, descriptor, self.like, self.anchor)
        return self._lookup_eval(ids, descriptor, self.like, self.anchor)

    def pool_train(
        self, ids: Tensor, offsets: Tensor | None, weights: Tensor | None, descriptor: Tensor
    ) -> Tensor:
        """Do a training lookup, and return one combined row per bag, `[bags, dim]`."""
        offsets = self._no_offsets if offsets is None else offsets
        weights = self._no_weights if weights is None else weights
        return self._pool_train(ids, offsets, weights, descriptor, self.like, self.anchor)[0]

    def pool_eval(
        self, ids: Tensor, offsets: Tensor | None, weights: Tensor | None, descriptor: Tensor
    ) -> Tensor:
        """Return one combined row per bag, `[bags, dim]`; the lookup does not change the table."""
        offsets = self._no_offsets if offsets is None else offsets
        weights = self._no_weights if weights is None else weights
        return self._pool_eval(ids, offsets, weights, descriptor, self.like, self.anchor)

    def stats(self) -> dict[str, Any]:
        """Return a dict with the counts of rows, bytes and operations.

        `rows` is the number of rows in all tiers. The call returns a stored number of rows and does
        not count the rows. `rows` includes rows that are due for eviction but not yet removed. Byte
        counts are for allocated memory, including room for growth. For a static table, `rows` is
        `vocab_size`, and byte counts include all rows. In a static table, a row takes only address
        space until its first lookup in training.

        For a table with a cache, the result also contains statistics of the tiers. `host_rows` is
        the number of rows in host memory, at most `host_capacity_rows`; `below_rows` is the number
        of rows that are only in lower tiers. For training lookups, the result has three counts:
        distinct keys (`looked_up_keys`), keys in host memory (`host_hits`), and keys read from a
        lower tier during the lookup (`host_misses`). For other lookups, the result has three
        counts: distinct keys (`evaluated_keys`), keys in host memory (`evaluated_host_hits`), and
        keys in lower tiers (`evaluated_below_hits`). `prefetched_rows` is the number of prefetched
        rows, and `written_down_rows` is the number of rows written to lower tiers.
        `lookup_wait_seconds` is the time that training lookups waited for rows, and
        `evaluation_wait_seconds` is the time that other lookups waited for rows.
        `prefetch_wait_seconds` is the time that batches waited for their prefetch.

        For each lower tier, the result contains statistics with the prefix `remote_` or `ssd_`. The
        statistics of a lower tier are `rows`, `hits` (rows found in the tier), `written_rows`,
        `spilled_rows` (rows written to the next tier), `read_bytes`, `written_bytes`, `disk_bytes`,
        `index_bytes` and `buffer_bytes`. If the table has rows on a device, statistics of the
        device tier have the prefix `device_`.
        """
        return self._synchronised().stats()

    def flush(self) -> None:
        """Write all rows to the lowest tier and sync this tier, so that rows outlive the process.

        Raises:
            ValueError: the table has no tier below host memory.
            OSError, RemoteError: a write to a tier fails.
        """
        if self.cache is None or not self.cache.has_lower_tier:
            raise ValueError(f"table '{self.name}': has no tier below host memory to write to")
        self._synchronised().flush()

    def __deepcopy__(self, memo: Any) -> TableParameter:
        raise TypeError(f"table '{self.name}': cannot be copied with its rows")

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"table '{self.name}': cannot be pickled with its rows; "
            "mindspore_rec.save_checkpoint saves a network with the rows of its tables"
        )

    def keep_rows(self) -> None:
        """Declare that the current rows of the table match the network's other weights.

        Checkpoints of MindSpore's own `save_checkpoint` and `ModelCheckpoint` contain no rows.
        If `mindspore.load_param_into_net` has loaded a checkpoint without rows, lookups raise an
        error until you call this method. After `mindspore_rec.load_checkpoint`, `import_data` or
        `StaticParameter.set_data` has loaded the rows, lookups work again. You may also call
        `import_data` or `set_data` first, and load the network's other weights later.

        Example:
            >>> from mindspore_rec import MapParameter
            >>> MapParameter("doc.keep_rows").keep_rows()
        """
        native = self._synchronised()
        self._rows_given = native.step
        native.rows_missing = False

    def miss_rows(self) -> None:
        """Make lookups raise an error if weights were loaded without the table's rows."""
        native = self._synchronised()
        # Rows that were set since the last step belong to the loaded weights.
        native.rows_missing = self._rows_given != native.step

    def close(self) -> None:
        """Free the table's rows and name; afterwards, any use of the table raises an error.

        Python's garbage collector (`gc.collect()`) closes a table that no network, optimizer or
        variable refers to any more. In a loop of trials with `RecModel` or `TrainStep`, the garbage
        collector closes the tables of earlier trials. The newest trial's tables stay open, because
        MindSpore keeps the trial's graph until it compiles another graph. In graph mode,
        MindSpore's own `nn.TrainOneStepCell` and `Model` keep all tables open until the process
        ends, unless `close` is called.

        Example:
            >>> import mindspore_rec
            >>> from mindspore_rec import MapParameter
            >>> table = MapParameter("doc.close")
            >>> table.close()
        """
        self._finalizer()
