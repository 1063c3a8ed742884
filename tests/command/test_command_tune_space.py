# SPDX-License-Identifier: Apache-2.0
"""The settings that `tune` tries: the values of the file, of the network, and of the schema."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mindspore_rec import Schema, models, tables_of
from mindspore_rec.command.settings import ModelSettings, settings_of
from mindspore_rec.command.tune_space import changed, present, suggested, tried_defaults
from mindspore_rec.feature import CategoryColumn, LabelColumn, NumberColumn
from mindspore_rec.train.models.registry import settings as model_settings


class FirstChoice:
    """Trial that always suggests the lowest value."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return low

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return low

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return choices[0]


class NthChoice(FirstChoice):
    """Trial that suggests a choice by its place."""

    def __init__(self, place: int) -> None:
        self.place = place

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return choices[min(self.place, len(choices) - 1)]


def test_only_settings_of_the_network_are_tried():
    columns = {"user": "category", "clicked": "label"}
    settings = settings_of({"source": "a.csv", "columns": columns, "model": {"dropout": 0.5}})
    places = suggested(
        FirstChoice(), settings, {"hidden": (8,), "dropout": 0.0, "numbers": "embed"}
    )
    assert places["model.hidden"] == [64] and places["model.dropout"] == 0
    assert {"model.layers", "model.members", "model.cross"}.isdisjoint(places)
    made = changed(settings, places)
    assert made.model.settings == {"hidden": [64], "dropout": 0.0, "numbers": "concat"}
    assert (made.embedding_dim, made.train.batch_size, made.train.epochs) == (4, 256, 3)


def test_the_first_trial_has_the_values_of_the_file():
    optuna = pytest.importorskip("optuna")
    columns = {"user": "category", "clicked": "label"}
    own = {
        "model": {"hidden": [50, 20], "layers": 2, "members": 3},
        "train": {"batch_size": 100, "learning_rate": 0.01, "table_rate": 0.5, "ema": 0.9},
        "embedding_dim": 6,
    }
    settings = settings_of({"source": "a.csv", "columns": columns, **own})
    defaults = model_settings("dcn_v2")
    trial = optuna.trial.FixedTrial(present(settings, defaults))
    own_model = {"hidden": [50, 20], "layers": 2, "dropout": 0.0, "members": 3}
    expected = own_model | {"numbers": "concat", "cross": "matrix"}
    assert changed(settings, suggested(trial, settings, defaults)) == dataclasses.replace(
        settings, model=ModelSettings("dcn_v2", expected)
    )


def test_fields_of_a_mixture_and_numbers_of_no_column_are_not_tried():
    columns = {"user": "category", "clicked": "label"}
    own = {"model": {"cross": {"experts": 2, "rank": 4}}}
    settings = settings_of({"source": "a.csv", "columns": columns, **own})
    schema = Schema([CategoryColumn("user"), LabelColumn("clicked")])
    defaults = tried_defaults(model_settings("dcn_v2"), schema)
    assert "numbers" not in defaults
    places = suggested(FirstChoice(), settings, defaults)
    assert {"model.numbers", "model.cross"}.isdisjoint(places) and "model.members" in places
    made = changed(settings, places).model.settings
    assert made["cross"] == own["model"]["cross"]
    assert "numbers" in tried_defaults(
        model_settings("dcn_v2"), Schema([*schema.columns, NumberColumn("price")])
    )


@pytest.mark.parametrize("name", ["dcn", "dcn_v2", "deepfm", "dlrm", "wide_deep"])
def test_networks_have_all_values_that_are_tried(name):
    """Each choice of each setting makes a network."""
    columns = [CategoryColumn("user"), NumberColumn("price"), LabelColumn("clicked")]
    settings = settings_of(
        {"source": "a.csv", "columns": {"user": "category", "clicked": "label"}, "model": name}
    )
    schema = Schema(columns, embedding_dim=4)
    for place in range(4):
        places = suggested(NthChoice(place), settings, model_settings(name))
        made = changed(settings, places).model
        net = models.get(name)(schema, name=f"tune.{name}.{place}", **made.settings)
        for table in tables_of(net):
            table.close()
