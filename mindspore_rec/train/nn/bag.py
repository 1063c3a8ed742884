# SPDX-License-Identifier: Apache-2.0
"""EmbeddingBag: look up bags of ids and combine the rows of each bag."""

from __future__ import annotations

from mindspore import Tensor, nn

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.old_arguments import takes_old
from mindspore_rec.train.nn.lookup import check_coefficient, check_counts, check_padding_key
from mindspore_rec.train.nn.new_tables import table_of
from mindspore_rec.train.nn.old_arguments import InConfig
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.table_parameter import COMBINERS, TableParameter

__all__ = ["EmbeddingBag"]


class EmbeddingBag(nn.Cell):
    r"""Look up bags of ids and combine the rows of each bag, in one operator.

    For a bag of ids :math:`i` with weights :math:`w_i` (1 if none are given) and rows :math:`e_i`:

    .. math::
        \text{sum} = \sum w_i e_i \quad
        \text{mean} = \frac{\sum w_i e_i}{\sum w_i} \quad
        \text{sqrtn} = \frac{\sum w_i e_i}{\sqrt{\sum w_i^2}}

    The formulas are the same as in TensorFlow's `embedding_lookup_sparse`. For a bag without ids,
    the result is zeros. The operator never writes the separate rows of a batch to memory.

    Args:
        config: description of a new table: a static table if `vocab_size` is set, otherwise a hash
            table. The default name is `embedding_table_<n>` for a static table and
            `hash_embedding_<n>` for a hash table. Default: None, which means that `table` is set.
        mode: 'sum', 'mean' or 'sqrtn'. Default: 'sum'.
        table: an existing HashTable or StaticParameter to share, in place of `config`.
        padding_key: id that is left out of all bags. Default: none.
        faae_coefficient: amount by which each occurrence of an id raises the id's count; see
            `TableLookup`. Only hash tables count ids. Default: 1.

    Inputs:
        ids: int32 or int64 Tensor `[bags, length]`; or `[n]` if offsets are passed.
        offsets: int32 or int64 `[bags]`, the start of each bag in ids. The first offset is 0, and
            each offset is at least as large as the previous offset.
        per_sample_weights: float32 weights, with the same shape as the ids. No gradient flows to
            the weights.

    Outputs:
        float32 Tensor `[bags, dim]`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        RuntimeError: offsets or weights do not fit the ids, ids have the wrong dtype or are outside
            the vocabulary, or the cell is in training and its table has no optimizer.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import EmbeddingBag, TableConfig
        >>> words = TableConfig(2, name="doc.bag", vocab_size=9, initializer="ones")
        >>> bag = EmbeddingBag(words, "mean", padding_key=0)
        >>> print(bag(Tensor([[1, 2, 0], [0, 0, 0]], ms.int32)))
        [[1. 1.]
         [0. 0.]]
    """

    @takes_old(InConfig(), order=("embedding_size", "mode"))
    def __init__(
        self,
        config: TableConfig | None = None,
        mode: str = "sum",
        *,
        table: TableParameter | None = None,
        padding_key: int | None = None,
        faae_coefficient: int = 1,
    ) -> None:
        super().__init__()
        faae = check_coefficient(faae_coefficient)
        self.mode = check_one_of("mode", mode, tuple(COMBINERS))
        self.padding_key = check_padding_key(padding_key)
        check_counts(table.config if isinstance(table, TableParameter) else config, faae)
        self.embedding_table = table_of("EmbeddingBag", config, table)
        self.embedding_table.refuse_device("an EmbeddingBag")
        self.embedding_size = self.embedding_table.dim
        self.plain = self.embedding_table.make_descriptor(self.padding_key, mode, False, faae)
        self.weighted = self.embedding_table.make_descriptor(self.padding_key, mode, True, faae)

    def construct(
        self, ids: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Return one combined row per bag."""
        if (ids.ndim == 2) == (offsets is not None) or ids.ndim > 2 or ids.ndim == 0:
            raise ValueError("ids must be [bags, length] without offsets, or [n] with offsets")
        descriptor = self.plain if per_sample_weights is None else self.weighted
        if self.training:
            return self.embedding_table.pool_train(ids, offsets, per_sample_weights, descriptor)
        return self.embedding_table.pool_eval(ids, offsets, per_sample_weights, descriptor)
