# SPDX-License-Identifier: Apache-2.0
"""Arguments of earlier versions: they work, warn once and are on the page of changes."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from mindspore import nn

from mindspore_rec import StaticParameter, TableConfig
from mindspore_rec.checkpoint import Publication, RecCheckpoint, RowChecks
from mindspore_rec.common.old_arguments import InSettings, Renamed, WithoutEffect, takes_old
from mindspore_rec.common.tiers.old_arguments import SSD_FIELDS
from mindspore_rec.nn import DotInteraction, FactorizationMachine, NumberEmbedding
from mindspore_rec.plan import row_bytes
from mindspore_rec.train import TableSummary
from mindspore_rec.train.nn.old_arguments import DESCRIBING
from tests.support.processes import ROOT


@dataclass(frozen=True)
class Size:
    """Settings of the function below."""

    height: int = 1
    width: int = 1


class Board:
    """What has changed: two arguments are settings, one has another name, one has no effect."""

    @takes_old(
        InSettings("size", Size, ["height", "width"]),
        Renamed("colour", "color"),
        WithoutEffect("glossy"),
        order=("name", "colour", "glossy", "height", "width"),
    )
    def __init__(self, name: str, *, color: str = "white", size: Size | None = None) -> None:
        self.made = (name, color, Size() if size is None else size)


def board(*arguments: Any, **named: Any) -> tuple[Any, list[str]]:
    """What is made of arguments, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = Board(*arguments, **named).made
    assert all(each.category is DeprecationWarning for each in caught)
    assert all(each.filename == __file__ for each in caught)
    return made, [str(each.message) for each in caught]


def test_the_signature_has_the_new_form() -> None:
    assert list(inspect.signature(Board).parameters) == ["name", "color", "size"]
    assert board("b", color="red", size=Size(2)) == (("b", "red", Size(2)), [])


@pytest.mark.parametrize(
    ("named", "made", "says"),
    [
        ({"height": 2}, ("b", "white", Size(2)), ["use size=Size(height=...) instead"]),
        ({"colour": "red"}, ("b", "red", Size()), ["use color=... instead"]),
        ({"glossy": True}, ("b", "white", Size()), ["it has no effect on Board, leave it out"]),
        ({"height": 2, "width": 3, "color": "red"}, ("b", "red", Size(2, 3)), ["height", "width"]),
    ],
)
def test_each_old_argument_works_and_warns_once(
    named: dict[str, Any], made: Any, says: list[str]
) -> None:
    result, messages = board("b", **named)
    assert result == made
    assert len(messages) == len(says)
    for message, text in zip(messages, says, strict=True):
        assert text in message and "ends with version 1.0" in message


def test_arguments_by_position_keep_their_places() -> None:
    made, messages = board("b", "red", True, 2, 3)
    assert made == ("b", "red", Size(2, 3))
    assert [each.split()[2] for each in messages] == ["height", "width", "colour", "glossy"]


def test_what_is_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"height must not be given beside size: use size=Size\("):
        Board("b", size=Size(), height=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes color, got colour beside it"):
        Board("b", color="red", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="multiple values for argument 'colour'"):
        Board("b", "red", colour="red")  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="positional argument"):
        Board("b", "red", True, 2, 3, 4)  # type: ignore[call-arg,arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'shape'"):
        Board("b", shape=1)  # type: ignore[call-arg]


CHECKPOINT: dict[str, Any] = {
    "keep_digests": True,
    "scrub_seconds": 60.0,
    "announce": print,
    "builder": "shop.net:build",
    "builder_arguments": {"dim": 8},
    "builder_inputs": ["ids:INT64:-1,26"],
}


def test_old_arguments_of_a_checkpoint(tmp_path: Path) -> None:
    checks = {each.name: CHECKPOINT[each.name] for each in fields(RowChecks)}
    published = {each.name: CHECKPOINT[each.name] for each in fields(Publication)}
    assert checks | published == CHECKPOINT
    with pytest.warns(DeprecationWarning) as caught:
        old = RecCheckpoint(tmp_path, every_steps=1, **CHECKPOINT)
    assert len(caught) == len(CHECKPOINT)
    assert all(each.filename == __file__ for each in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = RecCheckpoint(
            tmp_path,
            every_steps=1,
            row_checks=RowChecks(**checks),
            publication=Publication(**published),
        )
    assert old._scrub_seconds == new._scrub_seconds == 60
    for name in ("_announce", "_model", "_keep_digests"):
        assert getattr(old._writer, name) == getattr(new._writer, name)


def test_old_words_of_arguments(unique: Any) -> None:
    word: dict[str, Any] = {"dim": 4}
    made: dict[Callable[..., Any], list[Any]] = {
        TableConfig: [],
        row_bytes: ["SGD"],
        TableSummary: ["items", 10, 480],
        DotInteraction: [3],
        FactorizationMachine: [3],
        NumberEmbedding: [3],
    }
    for make, others in made.items():
        names = [each for each in inspect.signature(make).parameters if each != "embedding_dim"]
        named = dict(zip(names, others, strict=False))
        with pytest.warns(DeprecationWarning, match="use embedding_dim=... instead") as caught:
            old = make(**named, **word)
        assert [each.filename for each in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            new = make(**named, embedding_dim=4)
        assert type(old) is type(new)
        if not isinstance(old, nn.Cell):
            assert old == new
    size: dict[str, Any] = {"embedding_size": 4}
    with pytest.warns(DeprecationWarning, match="embedding_size .* use embedding_dim=... instead"):
        table = StaticParameter(3, name=unique(), **size)
    assert table.shape == (3, 4)


def test_old_words_of_fields() -> None:
    word: dict[str, Any] = {"dim": 4}
    config = TableConfig(8, name="a")
    with pytest.warns(DeprecationWarning, match="use embedding_dim=... instead") as caught:
        changed = dataclasses.replace(config, **word)
    assert [each.filename for each in caught] == [__file__]
    assert changed == TableConfig(4, name="a")
    old: Any = config
    with pytest.warns(DeprecationWarning, match="attribute dim of TableConfig .* embedding_dim"):
        assert old.dim == 8


@pytest.mark.parametrize(
    ("face", "old", "new"),
    [
        ("mindspore_rec.serving", "QuantisedRows", "QuantizedRows"),
        ("mindspore_rec.checkpoint", "read_quantised", "read_quantized"),
    ],
)
def test_old_names_of_faces(face: str, old: str, new: str) -> None:
    module = importlib.import_module(face)
    with pytest.warns(DeprecationWarning, match=f"{face}.{old} is .*: use {new} instead") as caught:
        assert getattr(module, old) is getattr(module, new)
    assert [each.filename for each in caught] == [__file__]
    assert old not in module.__all__ and new in module.__all__


def test_the_old_module_of_quantizing_works() -> None:
    sys.modules.pop("mindspore_rec.serving.quantise", None)
    with pytest.warns(DeprecationWarning, match="import quantize and dequantize from"):
        old = importlib.import_module("mindspore_rec.serving.quantise")
    new = importlib.import_module("mindspore_rec.serving.quantize")
    assert (old.quantise, old.dequantise) == (new.quantize, new.dequantize)


OLD = [*CHECKPOINT, "prefetch_ids", "dataset_sink_mode", "valid_dataset_sink_mode"]
OLD += [*SSD_FIELDS, *DESCRIBING, "dim"]


@pytest.mark.parametrize("name", OLD)
def test_the_page_has_each_old_argument(name: str) -> None:
    page = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `.*\b{name}(=|`.*\|.*\|$)", page, re.MULTILINE)
