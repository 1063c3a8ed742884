# SPDX-License-Identifier: Apache-2.0
"""The DeepFM network."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Parameter, Tensor

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.models.inputs import FirstOrder, InputLayer
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn.factorization import FactorizationMachine
from mindspore_rec.train.nn.fuse import fuse
from mindspore_rec.train.nn.mlp import MLP

__all__ = ["DeepFM"]


class DeepFM(Network):
    r"""DeepFM: the sum of a factorization machine and a perceptron over the same embeddings.

    .. math::
        z = b + \sum_f w_{i_f} + u^\top x + \sum_{j<k} \langle v_j, v_k \rangle + \text{MLP}(r)

    In the formulas, :math:`x` are the numbers, :math:`v` are the vectors, and :math:`r` is the row
    that `InputLayer` makes from ids and numbers.

    Source: Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction",
    IJCAI 2017, https://doi.org/10.24963/ijcai.2017/239.

    Args:
        schema: the `Schema` of the data, or a `Features` for arrays that have no schema. The fields
            and the embedded numbers must have at least two vectors in total, all of the same width.
        numbers: 'concat', 'embed', 'piecewise' or 'periodic'; see `InputLayer`. Default:
            'embed'.
        hidden: widths of the perceptron's layers. Default: (256, 128).
        dropout: dropout probability of the perceptron, in [0, 1). Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
        members: number of ensemble members, which share layers and tables, 1 to 256; see `Network`.
            Default: 1.
        name: prefix of the tables' names. Default: 'deepfm'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        numbers: float32 Tensor `[B, N]`, the schema's array `numbers`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
        >>> from mindspore_rec.models import DeepFM
        >>> columns = [CategoryColumn("user"), CategoryColumn("item"), LabelColumn("clicked")]
        >>> schema = Schema(columns, embedding_dim=4)
        >>> net = DeepFM(schema, hidden=(8,), name="doc.deepfm")
        >>> net(Tensor([[1, 2]], ms.int64)).shape
        (1, 1)
    """

    def __init__(
        self,
        schema: Schema | Features,
        *,
        numbers: str = "embed",
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        members: int = 1,
        name: str = "deepfm",
        seed: int = 0,
    ) -> None:
        super().__init__(
            schema,
            numbers=numbers,
            hidden=hidden,
            dropout=dropout,
            batch_norm=batch_norm,
            members=members,
            name=name,
            seed=seed,
        )
        self._set_members(members)
        dim = self.features.one_width("DeepFM")
        self.inputs = InputLayer(self.features, numbers, f"{name}.embedding", seed, members)
        self.first_order = FirstOrder(self.features, f"{name}.first_order", seed, members)
        vectors = self.inputs.vectors_of_parts
        self.parts = len(vectors)  # further parts are numbers
        self.pairs = FactorizationMachine(vectors, dim)
        self.deep = MLP(
            self.inputs.widths, hidden, "relu", dropout, batch_norm, out_features=members
        )
        fuse(self)

    @property
    def last_biases(self) -> list[Parameter]:
        """Biases of the last layer."""
        return [self.deep.last_bias]

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        linear = self.first_order(ids, numbers)
        row = self.inputs(ids, numbers)
        return self._answer(linear + self.pairs(*row[: self.parts]) + self.deep(*row))
