# SPDX-License-Identifier: Apache-2.0
"""Settings that `tune` tries, and the ranges of their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from mindspore_rec.command.settings import ModelSettings, Settings

__all__ = ["Trial", "changed", "suggested"]

_HIDDEN = {"64": (64,), "128-64": (128, 64), "256-128": (256, 128), "400-400": (400, 400)}


class Trial(Protocol):
    """The methods of Optuna's `Trial` that suggest a value."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Return a number in `[low, high]`."""

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """Return a whole number in `[low, high]`."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Return one of the choices."""


def suggested(trial: Trial, arguments: Collection[str]) -> dict[str, Any]:
    """Return the values of a trial, by their places in the YAML file.

    Args:
        trial: the trial.
        arguments: names of the network's arguments. Only those that it has are tried.
    """
    values: dict[str, Any] = {
        "train.learning_rate": trial.suggest_float("learning_rate", 3e-4, 3e-2, log=True),
        "train.batch_size": trial.suggest_categorical("batch_size", (256, 512, 1024, 2048)),
        "embedding_dim": trial.suggest_categorical("embedding_dim", (4, 8, 16, 32)),
    }
    if "hidden" in arguments:
        values["model.hidden"] = list(_HIDDEN[trial.suggest_categorical("hidden", tuple(_HIDDEN))])
    if "dropout" in arguments:
        values["model.dropout"] = trial.suggest_float("dropout", 0.0, 0.4)
    for name in ("cross_layers", "layers"):
        if name in arguments:
            values[f"model.{name}"] = trial.suggest_int(name, 1, 4)
    return values


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
