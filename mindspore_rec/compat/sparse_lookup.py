# SPDX-License-Identifier: Apache-2.0
"""Lookups in tables that `create_table` made: a cell for networks, a function for other code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from mindspore_rec.common.columns.feature_spec import FeatureSpec
from mindspore_rec.compat.create_table import padding_keys_of
from mindspore_rec.compat.hash_embedding_lookup import HashEmbeddingLookup
from mindspore_rec.compat.map_parameter import MapParameter
from mindspore_rec.compat.policies_of_specs import check_policies

__all__ = ["SparseLookup", "sparse_lookup"]


class SparseLookup(nn.Cell):
    """Cell that looks up the ids of one feature in a table.

    In training, an unknown id gets a row at its admission. In evaluation, the table does not
    change. If a network has several lookups of one table, the optimizer makes one step with the sum
    of the lookups' gradients. For padding keys of the table, the lookup returns zeros; padding keys
    are never trained.

    Args:
        table: a table that `create_table` made, or any MapParameter whose rows have one dimension.
            A table may have any number of lookups.
        spec: the feature; its `table_name` must be the table's name, and its thresholds must equal
            the thresholds of the table. The feature's `faae_coefficient` is the weight of each
            occurrence. Default: none.
        is_train: if False, the lookup only reads, even in training. If True, the lookup trains if
            the network is in training mode, and only reads otherwise. Default: True.

    Inputs:
        ids: int32 or int64 Tensor of any shape, static or dynamic.

    Outputs:
        float32 Tensor `[*ids.shape, dim]`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, or the feature does not fit the
            table.
        RuntimeError: the ids' dtype is not supported, or the network trains without an optimizer
            for the table.

    Corresponds to `mx_rec.core.embedding.sparse_lookup` in Rec SDK.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import FeatureSpec, SparseLookup, create_table
        >>> table = create_table(ms.int64, 4, "doc.items", "ones", padding_keys=0)
        >>> lookup = SparseLookup(table, FeatureSpec("clicked", table_name="doc.items"))
        >>> print(lookup(Tensor([[0, 7]], ms.int64)).asnumpy()[0])
        [[0. 0. 0. 0.]
         [1. 1. 1. 1.]]
    """

    def __init__(
        self, table: MapParameter, spec: FeatureSpec | None = None, *, is_train: bool = True
    ) -> None:
        super().__init__()
        _check_table(table)
        if spec is not None:
            _check_spec(table, spec)
        if not isinstance(is_train, bool):
            raise TypeError(f"is_train must be a bool, got {is_train!r}")
        padding = padding_keys_of(table)
        self.spec = spec
        self.is_train = is_train
        self.lookup = HashEmbeddingLookup(
            table.dim,
            table=table,
            padding_key=padding[0] if padding else None,
            **_coefficient(spec),
        )
        self.merges = len(padding) > 1

    def construct(self, ids: Tensor) -> Tensor:
        """Return the rows of the ids."""
        table = self.lookup.embedding_table
        if self.merges:
            ids = _merge_padding(table, ids)
        if self.is_train:
            return self.lookup(ids)
        return ops.stop_gradient(table.lookup_eval(ids, self.lookup.descriptor))


def sparse_lookup(
    table: MapParameter,
    ids: Tensor | FeatureSpec,
    is_train: bool = True,
    *,
    batch: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Look up ids in a table, without a cell.

    In a `construct` that is compiled as a graph, `ids` must be a Tensor. To look up a feature in a
    graph, use the cell `SparseLookup`.

    Args:
        table: a table that `create_table` made, or any MapParameter whose rows have one dimension.
        ids: int32 or int64 Tensor of any shape, or a feature of the table. If `ids` is a feature,
            the function reads the feature's column in `batch`.
        is_train: if True, the lookup inserts rows, counts occurrences and is differentiable; the
            table then needs an optimizer. If False, the lookup only reads. Default: True.
        batch: columns by feature name, if `ids` is a feature.

    Returns:
        float32 Tensor `[*ids.shape, dim]`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, the feature does not fit the table,
            or the batch lacks the feature.
        RuntimeError: the ids' dtype is not supported, or the network trains without an optimizer
            for the table.

    Corresponds to `mx_rec.core.embedding.sparse_lookup` in Rec SDK.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import FeatureSpec, create_table, sparse_lookup
        >>> table = create_table(ms.int64, 4, "doc.sparse_lookup", "ones")
        >>> sparse_lookup(table, Tensor([[1, 2]], ms.int64), is_train=False).shape
        (1, 2, 4)
        >>> spec = FeatureSpec("item", table_name="doc.sparse_lookup")
        >>> sparse_lookup(table, spec, False, batch={"item": Tensor([3], ms.int64)}).shape
        (1, 4)
    """
    _check_table(table)
    if not isinstance(is_train, bool):
        raise TypeError(f"is_train must be a bool, got {is_train!r}")
    spec = ids if isinstance(ids, FeatureSpec) else None
    ids = _ids_of(table, ids, batch)
    padding = padding_keys_of(table)
    if len(padding) > 1:
        ids = _merge_padding(table, ids)
    descriptor = table.make_descriptor(padding[0] if padding else None, **_coefficient(spec))
    return table.lookup_train(ids, descriptor) if is_train else table.lookup_eval(ids, descriptor)


def _ids_of(
    table: MapParameter, ids: Tensor | FeatureSpec, batch: Mapping[str, Tensor] | None
) -> Tensor:
    if isinstance(ids, Tensor):
        if batch is not None:
            raise ValueError("batch must be left out where ids is a Tensor")
        return ids
    if not isinstance(ids, FeatureSpec):
        raise TypeError(f"ids must be a Tensor or a FeatureSpec, got {type(ids).__name__}")
    _check_spec(table, ids)
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"batch must be a dict of columns, from which ids takes feature '{ids.name}', "
            f"got {type(batch).__name__}"
        )
    if ids.name not in batch:
        raise ValueError(f"batch must have feature '{ids.name}', got {sorted(batch)}")
    return batch[ids.name]


def _merge_padding(table: MapParameter, ids: Tensor) -> Tensor:
    """Replace all padding keys by the first one, because the operator supports one padding key."""
    if ids.dtype != ms.int32 and ids.dtype != ms.int64:
        raise TypeError("ids must be int32 or int64")
    if table.key_dtype == ms.int64:
        ids = ops.cast(ids, ms.int64)
    constants = table.padding_constants
    for key in constants[1:]:
        ids = ops.select(ops.equal(ids, key), constants[0], ids)
    return ops.stop_gradient(ids)


def _coefficient(spec: FeatureSpec | None) -> dict[str, Any]:
    coefficient = 1 if spec is None else spec.faae_coefficient
    return {} if coefficient == 1 else {"faae_coefficient": coefficient}


def _check_table(table: Any) -> None:
    if not isinstance(table, MapParameter):
        raise TypeError(
            f"table must be a MapParameter, as create_table makes it, got {type(table).__name__}"
        )
    if len(table.value_shape) != 1:
        raise ValueError(
            f"table '{table.name}': value_shape must have one dimension, got {table.value_shape}"
        )


def _check_spec(table: MapParameter, spec: Any) -> None:
    if not isinstance(spec, FeatureSpec):
        raise TypeError(f"spec must be a FeatureSpec, got {type(spec).__name__}")
    where = f"feature '{spec.name}'"
    if spec.is_timestamp:
        raise ValueError(f"{where} is the timestamp, and not looked up")
    if spec.table_name != table.name:
        raise ValueError(
            f"{where} is of table '{spec.table_name}', and not of '{table.name}': give it "
            f"table_name='{table.name}'"
        )
    remedy = "give create_table specs=, or leave the feature's threshold out"
    check_policies(spec, table.name, table.admission, table.eviction, remedy)
