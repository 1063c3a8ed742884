# SPDX-License-Identifier: Apache-2.0
"""The network that predictors run: a network of a schema, followed by sigmoids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.histories import ragged_places, values_name
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.graph.spread import spread
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.models.registry import build

__all__ = ["BUILDER", "Served", "builder_arguments", "recipe_of", "served"]

BUILDER = "mindspore_rec.models:served"
"""Name of the function `served`, for manifests."""


class Served(nn.Cell):
    """Network that returns, for each label, a probability (two-valued labels) or a number.

    Args:
        network: a network that was made from a schema.

    Inputs:
        ids: int64 Tensor `[B, K]`, the schema's array `ids`.
        arrays: the arrays after `ids` in `Schema.inputs`. The array `numbers` (float32 Tensor `[B,
            N]`; left out if N is 0) comes first, and the arrays of histories follow. The offsets of
            a history, int64 Tensor `[B]`, exclude the last offset, as in requests of the Open
            Inference Protocol.

    Outputs:
        float32 Tensor `[B, T]`.

    Attributes:
        input_names: names of the inputs.
        input_offsets: maps the name of each input that holds a history's values to the name of the
            input that holds the history's offsets.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(auto_prefix=False)  # parameters keep the names of the training
        self.network = network
        schema = network.schema
        assert schema is not None
        binary = np.array([[label.binary for label in schema.labels]])
        self.all_binary, self.none_binary = bool(binary.all()), not binary.any()
        self.binary = Tensor(binary.astype(np.float32), ms.float32)
        self.input_names = tuple(schema.inputs)
        self.varying_inputs = network.varying_inputs
        places = ragged_places(schema.inputs)
        self.input_offsets = {
            schema.inputs[value]: schema.inputs[place]
            for place, values in places.items()
            for value in values
        }
        # One index per input: for the offsets of a history, the index of an input with the
        # history's values; for any other input, -1.
        self.counted = tuple(
            places[place][0] if place in places else -1 for place in range(len(schema.inputs))
        )
        self.zero = Tensor(np.zeros(1, np.int64))
        self.set_inputs(*_inputs(schema))

    def construct(self, ids: Tensor, *arrays: Any) -> Tensor:
        """Return the probabilities."""
        inputs: tuple[Tensor, ...] = (ids, *arrays)
        if self.varying_inputs:
            inputs = self._with_last_offsets(inputs)
        logits = spread(self.network, inputs)
        if self.all_binary:
            return ops.sigmoid(logits)
        assert self.network.label_scale is not None
        numbers = self.network.label_scale(logits)
        if self.none_binary:
            return numbers
        return self.binary * ops.sigmoid(logits) + (1.0 - self.binary) * numbers

    def _with_last_offsets(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Append the number of values to the offsets."""
        made: tuple[Tensor, ...] = ()
        for k in range(len(self.counted)):
            array = inputs[k]
            if self.counted[k] >= 0:
                ones = ops.ones_like(inputs[self.counted[k]]).astype(ms.int64)
                # MindSpore's sum over no elements may be any number, so a 0 is appended.
                count = ops.concat((ones, self.zero), 0).sum(0, keepdims=True)
                array = ops.concat((array, count), 0)
            made += (array,)
        return made


def _inputs(schema: Schema) -> list[Tensor]:
    """Return the types and dynamic shapes of a network's inputs."""
    keys = max(field.stop for field in schema.fields)
    columns = {values_name(each.name): each for of in schema.histories for each in of}
    made = []
    for name in schema.inputs:
        if name == "ids":
            made.append(Tensor(shape=[None, keys], dtype=ms.int64))
        elif name == "numbers":
            made.append(Tensor(shape=[None, len(schema.numbers)], dtype=ms.float32))
        else:
            is_float = name in columns and columns[name].values == "float32"
            made.append(Tensor(shape=[None], dtype=ms.float32 if is_float else ms.int64))
    return made


def served(recipe: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[Served, FeaturePipeline]:
    """Return the network that predictors run, and the features that read raw columns.

    If a network was made from a schema, its checkpoints store the name of this function as the
    network's builder.

    Args:
        recipe: recipe of the network, from `Network.recipe`.
        schema: description of the schema, from `Schema.describe`.
    """
    network = build(recipe, Schema.from_description(schema))
    assert network.schema is not None
    return Served(network), network.schema.pipeline


def builder_arguments(network: Network) -> dict[str, Any]:
    """Return the arguments of `served` for a network, as JSON values.

    Raises:
        ValueError: the network was not made from a schema, or cannot be constructed from a recipe.
    """
    recipe = network.recipe()
    assert network.schema is not None
    return {"recipe": recipe, "schema": network.schema.describe()}


def recipe_of(model: Mapping[str, Any] | None) -> tuple[dict[str, Any], Schema] | None:
    """Return recipe and schema from a manifest's entry `model`; None for a user's own builder.

    Raises:
        ValueError: the entry `model` names this library's builder, but contains wrong arguments.
    """
    if model is None or model["builder"] != BUILDER:
        return None
    arguments = model["arguments"]
    if set(arguments) != {"recipe", "schema"}:
        raise ValueError(f"{BUILDER} must have the arguments recipe and schema, got {arguments}")
    return arguments["recipe"], Schema.from_description(arguments["schema"])
