# SPDX-License-Identifier: Apache-2.0
"""Settings that `tune` tries, and the ranges of their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mindspore_rec.command.settings import ModelSettings, Settings
from mindspore_rec.common.columns.schema.layout import numbers_of
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.inputs import NUMBERS

__all__ = ["Trial", "changed", "present", "suggested", "tried_defaults"]

_RATES = (3e-4, 3e-2)
_TABLE_RATES = (0.2, 5.0)
_AVERAGES = (None, 0.99, 0.999)
_MOST_DROPOUT = 0.5
_MOST_LAYERS = 4
_MEMBERS = (1, 2, 4)  # more would cost more than they are likely to gain in a search
_CROSSES = ("matrix", "stacked_matrix", "mixture", "stacked_mixture")
_HIDDEN = ((64,), (128, 64), (256, 128), (400, 400))


class Trial(Protocol):
    """The methods of Optuna's `Trial` that suggest a value."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Return a number in `[low, high]`."""

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """Return a whole number in `[low, high]`."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Return one element of `choices`."""


def tried_defaults(defaults: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return the default values of the network settings that matter for a schema.

    Args:
        defaults: default values of all settings of the network.
        schema: the schema. If the schema has no numbers, the setting `numbers` is left out.
    """
    has_numbers = bool(numbers_of(schema.columns))
    return {name: each for name, each in defaults.items() if has_numbers or name != "numbers"}


def suggested(trial: Trial, settings: Settings, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a trial: a dict from YAML keys such as 'train.batch_size' to values.

    Args:
        trial: the trial.
        settings: settings of the YAML file. If a setting has a list of choices, the choices include
            the value of the YAML file.
        defaults: default values of the network's settings. Settings that the network lacks are not
            tried.
    """
    sizes = sorted({256, 512, 1024, 2048, settings.train.batch_size})
    dims = sorted({4, 8, 16, 32, settings.embedding_dim})
    values: dict[str, Any] = {
        "train.learning_rate": trial.suggest_float("learning_rate", *_RATES, log=True),
        "train.batch_size": trial.suggest_categorical("batch_size", sizes),
        "embedding_dim": trial.suggest_categorical("embedding_dim", dims),
        "train.table_rate": trial.suggest_float("table_rate", *_TABLE_RATES, log=True),
        "train.ema": trial.suggest_categorical("ema", _with(_AVERAGES, settings.train.ema)),
    }
    if "hidden" in defaults:
        hidden = _hidden({**defaults, **settings.model.settings})
        values["model.hidden"] = list(hidden[trial.suggest_categorical("hidden", list(hidden))])
    if "dropout" in defaults:
        values["model.dropout"] = trial.suggest_float("dropout", 0.0, _MOST_DROPOUT)
    if "layers" in defaults:
        values["model.layers"] = trial.suggest_int("layers", 1, _MOST_LAYERS)
    for name, choices in _choices({**defaults, **settings.model.settings}).items():
        if name in defaults:
            values[f"model.{name}"] = trial.suggest_categorical(name, choices)
    return values


def _choices(model: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return a dict from each setting that has a few choices to the list of values to try."""
    choices: dict[str, tuple[Any, ...]] = {"numbers": NUMBERS, "members": _MEMBERS}
    if isinstance(model.get("cross"), str):  # not fields of a mixture, which stay as they are
        choices["cross"] = _CROSSES
    return {name: _with(each, model[name]) for name, each in choices.items() if name in model}


def _with(choices: Sequence[Any], own: Any) -> list[Any]:
    """Return the choices, including the value of the YAML file."""
    return [*choices, *(() if own in choices else (own,))]


def present(settings: Settings, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first trial's parameters: the YAML file's values, clipped to Optuna's ranges.

    Args:
        settings: settings of the YAML file.
        defaults: default values of the network's settings.
    """
    model = {**defaults, **settings.model.settings}
    low, high = _RATES
    values: dict[str, Any] = {
        "learning_rate": min(max(settings.train.learning_rate, low), high),
        "batch_size": settings.train.batch_size,
        "embedding_dim": settings.embedding_dim,
        "table_rate": min(max(settings.train.table_rate, _TABLE_RATES[0]), _TABLE_RATES[1]),
        "ema": settings.train.ema,
    }
    if "hidden" in model:
        values["hidden"] = "-".join(map(str, model["hidden"]))
    if "dropout" in model:
        values["dropout"] = min(model["dropout"], _MOST_DROPOUT)
    if "layers" in model:
        values["layers"] = min(max(model["layers"], 1), _MOST_LAYERS)
    return values | {name: model[name] for name in _choices(model) if name in defaults}


def _hidden(model: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return a dict from names such as '64-32' to the widths of hidden layers to try."""
    widths = [*_HIDDEN, tuple(model["hidden"])]
    return {"-".join(map(str, each)): each for each in widths}


def changed(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return settings with the values of a trial."""
    train: dict[str, Any] = {}
    top: dict[str, Any] = {}
    model = dict(settings.model.settings)
    for place, value in values.items():
        section, _, name = place.rpartition(".")
        {"train": train, "model": model, "": top}[section][name] = value
    return dataclasses.replace(
        settings,
        **top,
        train=dataclasses.replace(settings.train, **train),
        model=ModelSettings(settings.model.name, model),
    )
