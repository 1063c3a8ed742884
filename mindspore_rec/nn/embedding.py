# SPDX-License-Identifier: Apache-2.0
"""Embedding cells: ids in, rows out."""

from __future__ import annotations

import sys
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer

from mindspore_rec.cache.config import CacheConfig, check_cache
from mindspore_rec.checks import check_int, check_number, check_one_of
from mindspore_rec.parameter import (
    Admission,
    Eviction,
    MapParameter,
    StaticParameter,
    TableParameter,
)
from mindspore_rec.parameter.table_parameter import COMBINERS

MAX_COEFFICIENT = 1 << 20


def _max_norm(value: float | None) -> float | None:
    if value is None:
        return None
    if check_number("max_norm", value) <= 0:
        raise ValueError(f"max_norm must be > 0, got {value}")
    return float(value)


def _padding_key(value: int | None) -> int | None:
    return None if value is None else check_int("padding_key", value, -(1 << 63), (1 << 63) - 1)


def _require_sparse(sparse: bool) -> None:
    if sparse is not True:
        raise ValueError(
            f"sparse must be True for a table on the host, got {sparse!r}: its gradients are of "
            "the keys in the batch. Leave sparse out; the rows learn the same. Where a dense "
            "gradient is needed, take EmbeddingLookup(..., target='DEVICE', sparse=False)"
        )


def _refuse_vocab_cache(vocab_cache_size: int) -> None:
    if check_int("vocab_cache_size", vocab_cache_size, 0, 1 << 40) != 0:
        raise ValueError(
            f"vocab_cache_size must be 0 for a hash table, got {vocab_cache_size}: rows on the "
            "device over a table on the host are "
            f"cache=CacheConfig(device_rows={vocab_cache_size}), without a parameter server"
        )


def _clip_rows(rows: Tensor, max_norm: float) -> Tensor:
    norm = ops.sqrt(ops.maximum((rows * rows).sum(-1, keepdims=True), 1e-24))
    return rows * ops.minimum(max_norm / norm, 1.0)


class _TableLookup(nn.Cell):
    """Looks ids up in a table, in the way the training flag asks for."""

    def __init__(
        self,
        table: TableParameter,
        max_norm: float | None,
        padding_key: int | None,
        faae_coefficient: int = 1,
    ) -> None:
        super().__init__()
        self.embedding_table = table
        self.embedding_size = table.dim
        self.max_norm = _max_norm(max_norm)
        self.padding_key = _padding_key(padding_key)
        self.descriptor = table.make_descriptor(self.padding_key, faae_coefficient=faae_coefficient)

    def construct(self, ids: Tensor) -> Tensor:
        if self.training:
            rows = self.embedding_table.lookup_train(ids, self.descriptor)
        else:
            rows = self.embedding_table.lookup_eval(ids, self.descriptor)
        return rows if self.max_norm is None else _clip_rows(rows, self.max_norm)


class HashEmbeddingLookup(_TableLookup):
    """Embedding lookup in a hash table: any id is legal, rows appear as ids do.

    In training (`set_train()` on the network) an unknown id gets a row; in evaluation the table
    does not change and an unknown or not admitted id reads zeros (the number, where `param_init` is
    one). Several lookups of one table in one network are one optimizer step over the summed
    gradients.

    Args:
        embedding_size: floats in a row, 1 to 8192.
        key_dtype: `int32` or `int64`. Ids of int64 are refused by an int32 table. Default: `int32`.
        param_init: first value of a row, as `MapParameter`'s `default_value`. Default: 'normal'.
        sparse: must be True: gradients of a table are per key.
        max_norm: rows with a larger L2 norm are scaled to it on the way out. Default: no limit.
        permit_filter_value: an id is admitted in the batch in which its count of occurrences
            reaches this. Default: 1.
        evict_filter_value: a row not seen in training for that many steps is evicted. Default:
            never.
        vocab_cache_size: must be 0; upstream's rows on the device are `cache`'s `device_rows`.
        name: the table's name; of two open tables with one name only the newer can be used.
            Default: `hash_embedding_<n>`.
        padding_key: an id that reads zeros and is never trained. Default: none.
        table: an existing MapParameter to share; then the arguments that describe a table must be
            left at their defaults.
        seed: of the first values. Default: 0.
        admission: who gets a row, as for `MapParameter`, instead of `permit_filter_value`.
        eviction: who leaves, as for `MapParameter`, instead of `evict_filter_value`.
        unknown_value: what an id without a row reads, as for `MapParameter`.
        serving_unknown_value: the same in evaluation and prediction.
        faae_coefficient: what one occurrence in this lookup counts for in admission, 1 to 2**20.
            Default: 1.
        cache: the tiers the rows live in, a `CacheConfig`. Default: all rows in host memory.

    Inputs:
        ids: int32 or int64 Tensor of any shape, static or dynamic.

    Outputs:
        float32 Tensor `[*ids.shape, embedding_size]`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        RuntimeError: ids of another dtype; training without an optimizer that covers the table.

    After `mindspore_rec.HashEmbeddingLookup` of MindRec 0.3.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import HashEmbeddingLookup
        >>> embedding = HashEmbeddingLookup(4, ms.int64, "ones", name="doc.hash_embedding")
        >>> embedding(Tensor([[7, -1, 1 << 62]], ms.int64)).shape
        (1, 3, 4)
    """

    def __init__(
        self,
        embedding_size: int,
        key_dtype: Any = ms.int32,
        param_init: Any = "normal",
        sparse: bool = True,
        max_norm: float | None = None,
        permit_filter_value: int = 1,
        evict_filter_value: int = sys.maxsize,
        vocab_cache_size: int = 0,
        *,
        name: str | None = None,
        padding_key: int | None = None,
        table: MapParameter | None = None,
        seed: int = 0,
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        unknown_value: Any = None,
        serving_unknown_value: Any = None,
        faae_coefficient: int = 1,
        cache: CacheConfig | None = None,
    ) -> None:
        _require_sparse(sparse)
        _refuse_vocab_cache(vocab_cache_size)
        _max_norm(max_norm)
        _padding_key(padding_key)
        faae_coefficient = check_int("faae_coefficient", faae_coefficient, 1, MAX_COEFFICIENT)
        table = hash_table(
            embedding_size,
            key_dtype=key_dtype,
            param_init=param_init,
            permit_filter_value=permit_filter_value,
            evict_filter_value=evict_filter_value,
            name=name,
            table=table,
            seed=seed,
            admission=admission,
            eviction=eviction,
            unknown_value=unknown_value,
            serving_unknown_value=serving_unknown_value,
            cache=cache,
        )
        super().__init__(table, max_norm, padding_key, faae_coefficient)
        self.key_dtype = table.key_dtype


_TABLE_DEFAULTS = {
    "key_dtype": ms.int32,
    "param_init": "normal",
    "permit_filter_value": 1,
    "evict_filter_value": sys.maxsize,
    "name": None,
    "seed": 0,
    "admission": None,
    "eviction": None,
    "unknown_value": None,
    "serving_unknown_value": None,
    "cache": None,
}
_unnamed = [0]


def hash_table(
    embedding_size: int, *, table: MapParameter | None, **described: Any
) -> MapParameter:
    """The table of a hash embedding: the one given, or a new one as described."""
    embedding_size = check_int("embedding_size", embedding_size, 1, 8192)
    if table is not None:
        if not isinstance(table, MapParameter):
            raise TypeError(f"table must be a MapParameter, got {type(table).__name__}")
        for argument, value in described.items():
            default = _TABLE_DEFAULTS[argument]
            if value is not default and (default is None or value != default):
                raise ValueError(
                    f"{argument} describes a new table; with table= it must be left out"
                )
        if table.dim != embedding_size:
            raise ValueError(
                f"embedding_size must be that of table '{table.name}', {table.dim}, "
                f"got {embedding_size}"
            )
        return table
    if described["name"] is None:
        described["name"] = f"hash_embedding_{_unnamed[0]}"
        _unnamed[0] += 1
    return MapParameter(
        name=described["name"],
        key_dtype=described["key_dtype"],
        value_shape=embedding_size,
        default_value=described["param_init"],
        permit_filter_value=described["permit_filter_value"],
        evict_filter_value=described["evict_filter_value"],
        seed=described["seed"],
        admission=described["admission"],
        eviction=described["eviction"],
        unknown_value=described["unknown_value"],
        serving_unknown_value=described["serving_unknown_value"],
        cache=described["cache"],
    )


class EmbeddingLookup(nn.Cell):
    """Embedding lookup over a fixed vocabulary: drop-in for the `nn.EmbeddingLookup` that MindSpore
    drops.

    With `target='CPU'` the rows live on the host in the native core: lookup and optimizer run
    there, only on rows that a batch touches, while the dense network stays on the device. With
    `target='DEVICE'` the table is an ordinary Parameter on the device, and its gradient is dense.

    Args:
        vocab_size: number of ids, at least 1.
        embedding_size: floats in a row, 1 to 8192.
        param_init: a number, an initializer's name or object, or a float32 Tensor
            `[vocab_size, embedding_size]`. Default: 'normal'.
        target: 'CPU' or 'DEVICE'. Default: 'CPU'.
        slice_mode: only 'batch_slice'.
        manual_shapes: only None.
        max_norm: rows with a larger L2 norm are scaled to it on the way out. Default: no limit.
        sparse: True for 'CPU', False for 'DEVICE'.
        dtype: only float32.
        out_of_range: what an id outside the vocabulary does: 'error', which names the id, or
            'zeros' (what upstream did silently). Only for 'CPU'.
        name: the table's name, as for `HashEmbeddingLookup`. Only for 'CPU'.
        padding_key: an id that reads zeros and is never trained. Only for 'CPU'.
        seed: of the first values. Only for 'CPU'.
        cache: the tiers the rows live in, a `CacheConfig`. Only for 'CPU'. Default: all rows in
            host memory.
        vocab_cache_size: upstream's name for a table on the host whose most used rows are on the
            device, with either target: the same as `cache=CacheConfig(device_rows=...)`. 0: none.
            Default: 0.

    Inputs:
        ids: int32 or int64 Tensor of any shape, static or dynamic.

    Outputs:
        float32 Tensor `[*ids.shape, embedding_size]`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        RuntimeError: an id outside the vocabulary.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import EmbeddingLookup
        >>> lookup = EmbeddingLookup(4, 2, "ones", name="doc.embedding_lookup")
        >>> print(lookup(Tensor([[1, 0], [3, 2]], ms.int32)).shape)
        (2, 2, 2)
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        param_init: Any = "normal",
        target: str = "CPU",
        slice_mode: str = "batch_slice",
        manual_shapes: tuple[int, ...] | None = None,
        max_norm: float | None = None,
        sparse: bool = True,
        dtype: Any = ms.float32,
        *,
        out_of_range: str = "error",
        name: str | None = None,
        padding_key: int | None = None,
        seed: int = 0,
        cache: CacheConfig | None = None,
        vocab_cache_size: int = 0,
    ) -> None:
        super().__init__()
        check_one_of("target", target, ("CPU", "DEVICE"))
        if slice_mode != "batch_slice" or manual_shapes is not None:
            raise ValueError(
                "slice_mode must be 'batch_slice' and manual_shapes None: tables are not sliced"
            )
        if dtype != ms.float32:
            raise ValueError(f"dtype must be float32, got {dtype}")
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.target = target
        self.max_norm = _max_norm(max_norm)
        cache = _with_device_rows(check_cache(cache), vocab_cache_size)
        if target == "CPU" or vocab_cache_size:
            _require_sparse(sparse)
            _padding_key(padding_key)
            table = StaticParameter(
                vocab_size,
                embedding_size,
                param_init,
                name=name,
                out_of_range=out_of_range,
                seed=seed,
                cache=cache,
            )
            self.lookup = _TableLookup(table, max_norm, padding_key)
            self.embedding_table = table
            return
        if sparse is not False:
            raise ValueError("sparse must be False with target='DEVICE': its gradient is dense")
        given = {"out_of_range": out_of_range != "error", "name": name is not None}
        given.update(padding_key=padding_key is not None, seed=seed != 0, cache=cache is not None)
        for argument, is_given in given.items():
            if is_given:
                raise ValueError(f"{argument} is for target='CPU' only")
        values = param_init
        if not isinstance(param_init, Tensor):
            values = initializer(param_init, [vocab_size, embedding_size], ms.float32)
        self.embedding_table = Parameter(values, name="embedding_table")
        self.lookup = _DenseLookup(self.embedding_table, self.max_norm)

    def construct(self, ids: Tensor) -> Tensor:
        """Rows of ids."""
        return self.lookup(ids)


def _with_device_rows(cache: CacheConfig | None, vocab_cache_size: int) -> CacheConfig | None:
    if check_int("vocab_cache_size", vocab_cache_size, 0, 1 << 40) == 0:
        return cache
    if cache is not None:
        raise ValueError("vocab_cache_size is the device_rows of cache: with cache leave it out")
    return CacheConfig(device_rows=vocab_cache_size)


class _DenseLookup(nn.Cell):
    """Rows of an ordinary Parameter on the device."""

    def __init__(self, weight: Parameter, max_norm: float | None) -> None:
        super().__init__(auto_prefix=False)
        self.weight = weight
        self.max_norm = max_norm

    def construct(self, ids: Tensor) -> Tensor:
        rows = ops.gather(self.weight, ids, 0)
        return rows if self.max_norm is None else _clip_rows(rows, self.max_norm)


class EmbeddingBag(nn.Cell):
    r"""Looks bags of ids up and combines each bag's rows, in one operator.

    For a bag of ids :math:`i` with weights :math:`w_i` (1 where none are given) and rows
    :math:`e_i`:

    .. math::
        \text{sum} = \sum w_i e_i \quad
        \text{mean} = \frac{\sum w_i e_i}{\sum w_i} \quad
        \text{sqrtn} = \frac{\sum w_i e_i}{\sqrt{\sum w_i^2}}

    as in TensorFlow's `embedding_lookup_sparse`; a bag without ids is zeros. The rows of a batch
    are never written out one by one.

    Args:
        embedding_size: floats in a row, 1 to 8192.
        mode: 'sum', 'mean' or 'sqrtn'. Default: 'sum'.
        vocab_size: a fixed vocabulary (as `EmbeddingLookup`). Default: a hash table.
        key_dtype: of a hash table. Default: `int32`.
        param_init: as for `HashEmbeddingLookup`. Default: 'normal'.
        padding_key: an id that is no member of its bag. Default: none.
        permit_filter_value: as for `HashEmbeddingLookup`.
        evict_filter_value: as for `HashEmbeddingLookup`.
        name: the table's name. Default: numbered.
        table: an existing MapParameter to share.
        seed: of the first values. Default: 0.
        admission: as for `HashEmbeddingLookup`.
        eviction: as for `HashEmbeddingLookup`.
        unknown_value: as for `HashEmbeddingLookup`.
        serving_unknown_value: as for `HashEmbeddingLookup`.
        faae_coefficient: as for `HashEmbeddingLookup`.
        cache: as for `HashEmbeddingLookup`, also with `vocab_size`.

    Inputs:
        ids: int32 or int64, `[bags, length]`, or `[n]` together with offsets.
        offsets: int32 or int64 `[bags]`: where each bag starts in ids; starts at 0 and does not
            fall.
        per_sample_weights: float32 of the shape of ids. Constant: no gradient flows to them.

    Outputs:
        float32 Tensor `[bags, embedding_size]`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        RuntimeError: offsets or weights that do not fit the ids.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import EmbeddingBag
        >>> bag = EmbeddingBag(
        ...     2, "mean", vocab_size=9, param_init="ones", padding_key=0, name="doc.bag"
        ... )
        >>> print(bag(Tensor([[1, 2, 0], [0, 0, 0]], ms.int32)))
        [[1. 1.]
         [0. 0.]]
    """

    def __init__(
        self,
        embedding_size: int,
        mode: str = "sum",
        *,
        vocab_size: int | None = None,
        key_dtype: Any = ms.int32,
        param_init: Any = "normal",
        padding_key: int | None = None,
        permit_filter_value: int = 1,
        evict_filter_value: int = sys.maxsize,
        name: str | None = None,
        table: MapParameter | None = None,
        seed: int = 0,
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        unknown_value: Any = None,
        serving_unknown_value: Any = None,
        faae_coefficient: int = 1,
        cache: CacheConfig | None = None,
    ) -> None:
        super().__init__()
        faae = check_int("faae_coefficient", faae_coefficient, 1, MAX_COEFFICIENT)
        self.mode = check_one_of("mode", mode, tuple(COMBINERS))
        self.padding_key = _padding_key(padding_key)
        if vocab_size is None:
            self.embedding_table: TableParameter = hash_table(
                embedding_size,
                key_dtype=key_dtype,
                param_init=param_init,
                permit_filter_value=permit_filter_value,
                evict_filter_value=evict_filter_value,
                name=name,
                table=table,
                seed=seed,
                admission=admission,
                eviction=eviction,
                unknown_value=unknown_value,
                serving_unknown_value=serving_unknown_value,
                cache=cache,
            )
        else:
            for argument, given in (
                ("key_dtype", key_dtype != ms.int32),
                ("permit_filter_value", permit_filter_value != 1),
                ("evict_filter_value", evict_filter_value != sys.maxsize),
                ("table", table is not None),
                ("admission", admission is not None),
                ("eviction", eviction is not None),
                ("unknown_value", unknown_value is not None),
                ("serving_unknown_value", serving_unknown_value is not None),
                ("faae_coefficient", faae != 1),
            ):
                if given:
                    raise ValueError(f"{argument} is for hash tables; with vocab_size leave it out")
            self.embedding_table = StaticParameter(
                vocab_size, embedding_size, param_init, name=name, seed=seed, cache=cache
            )
        self.embedding_table.refuse_device("an EmbeddingBag")
        self.embedding_size = self.embedding_table.dim
        self.plain = self.embedding_table.make_descriptor(self.padding_key, mode, False, faae)
        self.weighted = self.embedding_table.make_descriptor(self.padding_key, mode, True, faae)

    def construct(
        self, ids: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """One combined row a bag."""
        if (ids.ndim == 2) == (offsets is not None) or ids.ndim > 2 or ids.ndim == 0:
            raise ValueError("ids must be [bags, length] without offsets, or [n] with offsets")
        descriptor = self.plain if per_sample_weights is None else self.weighted
        if self.training:
            return self.embedding_table.pool_train(ids, offsets, per_sample_weights, descriptor)
        return self.embedding_table.pool_eval(ids, offsets, per_sample_weights, descriptor)


def tables_of(net: nn.Cell) -> list[TableParameter]:
    """All tables of a network, each once, in the order of its cells.

    Args:
        net: any Cell.

    Example:
        >>> from mindspore_rec import HashEmbeddingLookup
        >>> [table.name for table in tables_of(HashEmbeddingLookup(2, name="doc.tables_of"))]
        ['doc.tables_of']
    """
    found: list[TableParameter] = []
    for _, cell in net.cells_and_names():
        if isinstance(cell, TableParameter) and cell not in found:
            found.append(cell)
    return found
