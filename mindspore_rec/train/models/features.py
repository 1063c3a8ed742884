# SPDX-License-Identifier: Apache-2.0
"""Features: describes a network's data, and makes the cells that read the data."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mindspore import nn

__all__ = ["Features"]


class Features(ABC):
    """Description of the arrays that a network reads; its methods make the cells that look up ids.

    A `Schema` can describe the arrays for the networks of `mindspore_rec.models`. For arrays that
    have no schema, write a subclass of `Features`.

    A row consists of vectors and numbers. Each field of a row has one vector, for example the
    embedding of the field's id or, for a list of ids, the mean of the ids' embeddings.
    """

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """Number of floats in the vector of each field."""

    @property
    @abstractmethod
    def numbers(self) -> int:
        """Number of floats in a row of the array `numbers`; 0 if there is no array `numbers`."""

    @property
    @abstractmethod
    def tasks(self) -> tuple[str, ...]:
        """Names of the labels, one for each output of a network."""

    @property
    def binary(self) -> tuple[bool, ...]:
        """For each task, True if its label has two values, and False if the label is a number."""
        return (True,) * len(self.tasks)

    @abstractmethod
    def embedding(self, name: str, seed: int) -> nn.Cell:
        """Return a cell that returns the vectors of all fields.

        The cell's input is the array `ids`. The output is a tuple of float32 Tensors `[B, vectors,
        dim]`. Together, the Tensors contain the vectors of all fields in the order of the fields.
        The cell's attribute `parts` is a tuple with a pair (vectors, dim) for each Tensor in the
        output.

        Args:
            name: name of the table, or prefix of the tables' names.
            seed: seed of the tables' initial values.
        """

    @abstractmethod
    def sums(self, name: str, seed: int) -> nn.Cell:
        """Return a cell that returns the sum of one weight per field, the first-order term.

        The cell's input is the array `ids`, and its output is a float32 Tensor `[B, 1]`. All
        weights start at 0. The cell's attribute `out_features` is 1.

        Args:
            name: name of the weights' table, or prefix of the tables' names.
            seed: seed of the tables' initial values.
        """

    @property
    def std(self) -> float:
        """Standard deviation of the normal distribution from which initial vectors are drawn."""
        return 0.01

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields, for error messages."""
        return tuple(f"field {k}" for k in range(len(self.widths)))

    @property
    def usual_width(self) -> int:
        """Number of floats in a number's vector: the most frequent width of the fields' vectors."""
        return max(self.widths, key=self.widths.count)

    def one_width(self, model: str) -> int:
        """Return the common width of all vectors, for a network that multiplies them pairwise.

        Args:
            model: name of the network, for the error message.

        Raises:
            ValueError: the vectors differ in width.
        """
        usual = self.usual_width
        other = [
            f"'{name}' has {width}"
            for name, width in zip(self.names, self.widths, strict=True)
            if width != usual
        ]
        if other:
            raise ValueError(
                f"{model} multiplies the vectors of columns, so that all columns must have one "
                f"embedding_dim: {', '.join(other)}, the other columns have {usual}"
            )
        return usual
