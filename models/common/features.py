# SPDX-License-Identifier: Apache-2.0
"""PackedFeatures: describes the arrays `ids` and `numbers` to a network, without a schema."""

from __future__ import annotations

from dataclasses import dataclass, field

from mindspore import nn

from mindspore_rec.models import Features
from models.common.checks import check_least
from models.common.embedding import FieldEmbedding, FieldSum
from models.common.embedding_config import EmbeddingConfig

__all__ = ["PackedFeatures"]


@dataclass(frozen=True)
class PackedFeatures(Features):
    """Features in two arrays: `ids`, int64 `[B, F]`, and `numbers`, float32 `[B, N]`.

    Args:
        fields: number of categorical fields F, at least 1.
        numbers: number of numeric columns N, at least 0.
        config: description of the embeddings. Default: 16 floats in a hash table.
        tasks: names of the labels. Default: one label.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> from mindspore import Tensor
        >>> from mindspore_rec.models import DCN
        >>> features = PackedFeatures(3, 0, EmbeddingConfig(embedding_dim=4))
        >>> DCN(features, hidden=(8,), name="doc.packed")(Tensor([[1, 2, 3]])).shape
        (1, 1)
    """

    fields: int
    numbers: int = 0
    config: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    tasks: tuple[str, ...] = ("label",)

    def __post_init__(self) -> None:
        check_least("fields", self.fields, 1, 1 << 16)
        check_least("numbers", self.numbers, 0, 1 << 16)

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of floats in the vector of each field."""
        return (self.config.embedding_dim,) * self.fields

    @property
    def std(self) -> float:
        """Standard deviation of the initial values of all vectors."""
        return self.config.std

    def embedding(self, name: str, seed: int) -> nn.Cell:
        """Return a cell that computes the vectors of all fields."""
        return FieldEmbedding(self.fields, self.config, name, seed)

    def sums(self, name: str, seed: int) -> nn.Cell:
        """Return a cell that computes the sum of one weight per field."""
        return FieldSum(self.fields, self.config, name, seed)
