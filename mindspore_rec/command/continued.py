# SPDX-License-Identifier: Apache-2.0
"""Compare the settings of a training or a search with the settings with which it began."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mindspore_rec.command.opened import schema_of
from mindspore_rec.command.settings import Settings, settings_of
from mindspore_rec.common.yaml_text import parse_yaml, read_yaml, written_yaml

__all__ = ["RESUMED", "SEARCHED", "changes", "check_unchanged", "with_places"]

# The settings that `train --resume` applies: the length of the training, its rate, the evaluations,
# and where data and checkpoints are. All other settings make another model, other labels or other
# batches.
RESUMED = (
    *("source", "bad_rows", "train.epochs", "train.learning_rate", "train.early_stopping"),
    *("train.evaluations", "train.refit", "train.workers"),
    *("train.checkpoint_seconds", "train.delta_seconds"),
)
# The settings that do not change the trials of `tune`. The rows are compared by their digest.
SEARCHED = (
    *("source", "split.test", "train.refit", "train.workers"),
    *("train.checkpoint_seconds", "train.delta_seconds"),
)


def check_unchanged(before: str, now: str, free: Collection[str], remedy: str) -> None:
    """Raise ValueError if settings that must not change differ.

    Args:
        before: text of the YAML file of the earlier call.
        now: text of the YAML file of this call.
        free: keys that may change.
        remedy: what to do, for the error's message.

    Raises:
        ValueError: a setting differs. The message names the key, the old value and the new value.
    """
    if before == now:
        return
    earlier, present = (settings_of(parse_yaml(text)) for text in (before, now))
    if different := changes(earlier, present, free):
        raise ValueError(f"{'; '.join(different)}: {remedy}")


def changes(before: Settings, now: Settings, free: Collection[str] = ()) -> list[str]:
    """Return a clause for each setting that differs.

    Two notations of a column, such as `number` and `{kind: number}`, do not differ.

    Args:
        before: settings of the earlier call.
        now: settings of this call.
        free: keys that may differ.

    Example:
        >>> columns = {"user": "category", "clicked": "label"}
        >>> before = settings_of({"source": "a.csv", "columns": columns})
        >>> changes(before, dataclasses.replace(before, embedding_dim=8))
        ["'embedding_dim' was 16 and is 8"]
    """
    earlier, present = _by_key(before), _by_key(now)
    if before.model.name != now.model.name:  # the networks have different settings
        name = "model.name"
        return [f"{name!r} was {earlier[name][1]} and is {present[name][1]}"]
    keys = [key for key in dict.fromkeys([*earlier, *present]) if key not in free]
    made = []
    for key in keys:
        (old, old_text), (new, new_text) = (each.get(key, _NONE) for each in (earlier, present))
        if old != new:
            made.append(f"{key!r} was {old_text} and is {new_text}")
    if not made and _names(before) != _names(now):  # the network's inputs have this order
        made = [f"'columns' had the order {_names(before)} and has the order {_names(now)}"]
    return made


_NONE = (None, "absent")


def _by_key(settings: Settings) -> dict[str, tuple[Any, str]]:
    """Return a dict from each key to its value, for comparisons, and the value's text."""
    columns = schema_of(settings).columns
    texts = {f"columns.{name}": each for name, each in settings.columns.items()}
    values: dict[str, Any] = {  # an ignored column is like a column that is absent
        f"columns.{each.name}": each if _is_read(each) else None for each in columns
    }
    for section in dataclasses.fields(settings):
        value = getattr(settings, section.name)
        if section.name == "columns":
            continue
        if section.name == "model":
            values["model.name"] = value.name
            values |= {f"model.{name}": each for name, each in value.settings.items()}
        elif section.name in ("split", "train"):
            for each in dataclasses.fields(value):
                values[f"{section.name}.{each.name}"] = getattr(value, each.name)
        else:
            values[section.name] = value
    return {key: (value, str(texts.get(key, value))) for key, value in values.items()}


def _is_read(column: Any) -> bool:
    return column.kind != "ignored"


def _names(settings: Settings) -> list[str]:
    return [each.name for each in schema_of(settings).columns if _is_read(each)]


def with_places(path: Path, places: Mapping[str, Any]) -> str:
    """Return the text of a YAML file in which the values in `places` replace the file's values.

    Args:
        path: path of the YAML file.
        places: dict from keys such as 'train.epochs' to values. If `places` is empty, the text is
            the file's own text, with its comments.
    """
    if not places:
        return path.read_text(encoding="utf-8")
    document = dict(read_yaml(path))
    for place, value in places.items():
        section, _, name = place.rpartition(".")
        if section:
            before = document.get(section, {})
            before = {"name": before} if isinstance(before, str) else before
            document[section] = {**before, name: value}
        else:
            document[name] = value
    return written_yaml(document)
