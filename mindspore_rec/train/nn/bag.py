# SPDX-License-Identifier: Apache-2.0
"""EmbeddingBag: bags of ids to one combined row each."""

from __future__ import annotations

import sys
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.rows.policies import Admission, Eviction
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.train.nn.hash_lookup import hash_config, new_table, shared_table
from mindspore_rec.train.nn.lookup import check_coefficient, check_padding_key
from mindspore_rec.train.parameter.map_parameter import MapParameter
from mindspore_rec.train.parameter.static_parameter import StaticParameter
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.table_parameter import COMBINERS, TableParameter
from mindspore_rec.train.parameter.upstream import (
    REQUIRED,
    check_described_once,
    describing_arguments,
    given_arguments,
)

__all__ = ["EmbeddingBag"]

_HASH_ONLY = (
    *("key_dtype", "permit_filter_value", "evict_filter_value", "table", "admission", "eviction"),
    *("unknown_value", "serving_unknown_value", "faae_coefficient"),
)


class EmbeddingBag(nn.Cell):
    r"""Lookup of bags of ids that combines each bag's rows, in one operator.

    For a bag of ids :math:`i` with weights :math:`w_i` (1 if none are given) and rows :math:`e_i`:

    .. math::
        \text{sum} = \sum w_i e_i \quad
        \text{mean} = \frac{\sum w_i e_i}{\sum w_i} \quad
        \text{sqrtn} = \frac{\sum w_i e_i}{\sqrt{\sum w_i^2}}

    as in TensorFlow's `embedding_lookup_sparse`; a bag without ids is zeros. The rows of a batch
    are never written out one by one.

    Args:
        embedding_size: floats in a row, 1 to 8192.
        mode: 'sum', 'mean' or 'sqrtn'. Default: 'sum'.
        vocab_size: number of ids of a fixed vocabulary (as `EmbeddingLookup`). Default: a hash
            table.
        key_dtype: dtype of the keys of a hash table. Default: `int32`.
        param_init: as for `HashEmbeddingLookup`. Default: 'normal'.
        padding_key: id that is no member of its bag. Default: none.
        permit_filter_value: as for `HashEmbeddingLookup`.
        evict_filter_value: as for `HashEmbeddingLookup`.
        name: the table's name. Default: numbered.
        table: an existing MapParameter to share.
        seed: seed of the first values. Default: 0.
        admission: as for `HashEmbeddingLookup`.
        eviction: as for `HashEmbeddingLookup`.
        unknown_value: as for `HashEmbeddingLookup`.
        serving_unknown_value: as for `HashEmbeddingLookup`.
        faae_coefficient: as for `HashEmbeddingLookup`.
        cache: as for `HashEmbeddingLookup`, also with `vocab_size`.
        config: the table as a `TableConfig`, of either kind, instead of the arguments above that
            describe one.

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
        embedding_size: int = REQUIRED,
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
        config: TableConfig | None = None,
    ) -> None:
        super().__init__()
        faae = check_coefficient(faae_coefficient)
        explicit = given_arguments(EmbeddingBag.__init__, locals())
        describing = describing_arguments(EmbeddingBag.__init__, locals())
        self.mode = check_one_of("mode", mode, tuple(COMBINERS))
        self.padding_key = check_padding_key(padding_key)
        if table is None:
            check_described_once(describing, config, embedding_size=embedding_size)
        if vocab_size is not None or (config is not None and config.vocab_size is not None):
            for argument in explicit:
                if argument in _HASH_ONLY:
                    raise ValueError(f"{argument} is for hash tables; with vocab_size leave it out")
        if table is not None:
            self.embedding_table: TableParameter = shared_table(table, embedding_size, describing)
        elif config is not None:
            self.embedding_table = new_table("EmbeddingBag", config)
        elif vocab_size is not None:
            self.embedding_table = StaticParameter(
                vocab_size, embedding_size, param_init, name=name, seed=seed, cache=cache
            )
        else:
            config = hash_config(
                embedding_size=embedding_size,
                key_dtype=key_dtype,
                param_init=param_init,
                permit_filter_value=permit_filter_value,
                evict_filter_value=evict_filter_value,
                name=name,
                seed=seed,
                admission=admission,
                eviction=eviction,
                unknown_value=unknown_value,
                serving_unknown_value=serving_unknown_value,
                cache=cache,
            )
            self.embedding_table = new_table("EmbeddingBag", config)
        self.embedding_table.refuse_device("an EmbeddingBag")
        self.embedding_size = self.embedding_table.dim
        self.plain = self.embedding_table.make_descriptor(self.padding_key, mode, False, faae)
        self.weighted = self.embedding_table.make_descriptor(self.padding_key, mode, True, faae)

    def construct(
        self, ids: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Return one combined row a bag."""
        if (ids.ndim == 2) == (offsets is not None) or ids.ndim > 2 or ids.ndim == 0:
            raise ValueError("ids must be [bags, length] without offsets, or [n] with offsets")
        descriptor = self.plain if per_sample_weights is None else self.weighted
        if self.training:
            return self.embedding_table.pool_train(ids, offsets, per_sample_weights, descriptor)
        return self.embedding_table.pool_eval(ids, offsets, per_sample_weights, descriptor)
