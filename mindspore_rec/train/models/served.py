# SPDX-License-Identifier: Apache-2.0
"""The network that predictors run: a network of a schema, followed by sigmoids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.models.registry import build

__all__ = ["BUILDER", "Served", "builder_arguments", "recipe_of", "served"]

BUILDER = "mindspore_rec.models:served"
"""Name of the function `served`, for manifests."""


class Served(nn.Cell):
    """Network that returns probabilities; for a label that is a number, the number.

    Args:
        network: a network that was made from a schema.

    Inputs:
        ids: int64 Tensor `[B, K]`, the schema's array `ids`.
        numbers: float32 Tensor `[B, N]`, the schema's array `numbers`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, T]`.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(auto_prefix=False)  # parameters keep the names of the training
        self.network = network
        schema = network.schema
        assert schema is not None
        binary = np.array([[label.binary for label in schema.labels]])
        self.all_binary, self.none_binary = bool(binary.all()), not binary.any()
        self.binary = Tensor(binary.astype(np.float32), ms.float32)
        keys = max(field.stop for field in schema.fields)
        inputs = [Tensor(shape=[None, keys], dtype=ms.int64)]
        if schema.numbers:
            inputs.append(Tensor(shape=[None, len(schema.numbers)], dtype=ms.float32))
        self.set_inputs(*inputs)

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the probabilities."""
        logits = self.network(ids) if numbers is None else self.network(ids, numbers)
        if self.all_binary:
            return ops.sigmoid(logits)
        assert self.network.label_scale is not None
        numbers = self.network.label_scale(logits)
        if self.none_binary:
            return numbers
        return self.binary * ops.sigmoid(logits) + (1.0 - self.binary) * numbers


def served(recipe: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[Served, FeaturePipeline]:
    """Return the network that predictors run, and the features that read raw columns.

    Checkpoints of networks that were made from a schema name this function as the builder of their
    network.

    Args:
        recipe: recipe of the network, as `Network.recipe` returns it.
        schema: description of the schema, as `Schema.describe` returns it.
    """
    network = build(recipe, Schema.from_description(schema))
    assert network.schema is not None
    return Served(network), network.schema.pipeline


def builder_arguments(network: Network) -> dict[str, Any]:
    """Return the arguments of `served` for a network, as JSON values.

    Raises:
        ValueError: the network was not made from a schema, or cannot be made again.
    """
    recipe = network.recipe()
    assert network.schema is not None
    return {"recipe": recipe, "schema": network.schema.describe()}


def recipe_of(model: Mapping[str, Any] | None) -> tuple[dict[str, Any], Schema] | None:
    """Return recipe and schema from the entry `model` of a manifest; None for other networks.

    Raises:
        ValueError: the entry is of this library's networks, but its arguments are not.
    """
    if model is None or model["builder"] != BUILDER:
        return None
    arguments = model["arguments"]
    if set(arguments) != {"recipe", "schema"}:
        raise ValueError(f"{BUILDER} must have the arguments recipe and schema, got {arguments}")
    return arguments["recipe"], Schema.from_description(arguments["schema"])
