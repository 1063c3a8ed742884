# SPDX-License-Identifier: Apache-2.0
"""Names of MindRec and Rec SDK that are not here: the program says what the pages say."""

from __future__ import annotations

import importlib
import re

import pytest

import mindspore_rec
from mindspore_rec.common.old_names import ALIASES, ARGUMENTS, SENTENCES
from tests.support.processes import ROOT, run_program

REC_SDK = (ROOT / "docs" / "from_rec_sdk.md").read_text(encoding="utf-8")
MINDREC = (ROOT / "docs" / "from_mindrec.md").read_text(encoding="utf-8")

# In the first columns, but of another package: methods, and what a user's program imports.
OF_OTHERS = {
    *("size", "capacity", "set_threshold", "Saver", "Batch", "save", "state_dict", "progress"),
    *("to", "pin_memory", "record_stream", "Pipelineable"),
}


def first_columns(page: str) -> set[str]:
    """Return the names that tables with Rec SDK's names explain: `name` and `name(...)`."""
    rows = re.findall(r"^\| (`.*?) \| ", page, re.M)
    code = [each for row in rows for each in re.findall(r"`([^`]+)`", row)]
    calls = [each.split("(")[0].split("=")[0].split(".")[-1] for each in code]
    return {each for each in calls if re.fullmatch(r"[A-Za-z_]{2,}", each) and each != each.upper()}


def sections_of_names() -> str:
    """Return the tables of names of Rec SDK's page, without variables, files and combinations."""
    return REC_SDK.split("## Combinations")[0] + REC_SDK.split("## Rec SDK Torch")[1]


def test_each_name_of_the_page_is_there_or_says_what_to_use() -> None:
    names = first_columns(sections_of_names())
    assert len(names) > 30
    arguments = {each for of_one in ARGUMENTS.values() for each in of_one}
    for name in sorted(names - OF_OTHERS - arguments):
        assert hasattr(mindspore_rec, name) or name in SENTENCES, name


def test_each_name_that_says_what_to_use_is_on_a_page() -> None:
    arguments = [each for of_one in ARGUMENTS.values() for each in of_one]
    for name in [*ALIASES, *SENTENCES, *arguments]:
        assert re.search(rf"\b{name}\b", REC_SDK + MINDREC), name


@pytest.mark.parametrize("name", sorted(SENTENCES))
def test_a_missing_name_says_what_to_use(name: str) -> None:
    message = f"module 'mindspore_rec' has no attribute '{name}': {SENTENCES[name]}"
    assert not hasattr(mindspore_rec, name) and name not in dir(mindspore_rec)
    with pytest.raises(AttributeError, match=re.escape(message)):
        getattr(mindspore_rec, name)
    with pytest.raises(ImportError, match=re.escape(message)):
        exec(f"from mindspore_rec import {name}")  # what a program's first line does


def test_another_missing_name_is_pythons_error() -> None:
    name = "nothing"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'$"):
        getattr(mindspore_rec, name)
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from mindspore_rec import nothing")


def test_aliases_work() -> None:
    assert {name: getattr(mindspore_rec, name) for name in ALIASES} == {
        "terminate_config_initializer": mindspore_rec.terminate
    }
    exec("from mindspore_rec import terminate_config_initializer")


@pytest.mark.parametrize(
    ("function", "argument"),
    [(function, argument) for function, known in ARGUMENTS.items() for argument in known],
)
def test_an_argument_of_rec_sdk_says_what_to_use(function: str, argument: str) -> None:
    sentence = f"{function} takes no argument '{argument}': {ARGUMENTS[function][argument]}"
    with pytest.raises(TypeError, match=re.escape(sentence)):
        getattr(mindspore_rec, function)(**{argument: 1})


@pytest.mark.parametrize("function", sorted(ARGUMENTS))
def test_another_argument_says_which_there_are(function: str) -> None:
    with pytest.raises(TypeError, match=f"{function} takes no argument 'colour', only "):
        getattr(mindspore_rec, function)(colour=1)


def test_what_is_said_to_use_is_there() -> None:
    places = [mindspore_rec, mindspore_rec.MapParameter, mindspore_rec.LazyAdam]
    places += [importlib.import_module(f"mindspore_rec.{room}") for room in ("nn", "train")]
    places += [importlib.import_module("mindspore.common.initializer"), mindspore_rec.RecModel]
    sentences = [*SENTENCES.values(), *(e for known in ARGUMENTS.values() for e in known.values())]
    used = {each for text in sentences for each in re.findall(r"\b([A-Za-z_]{3,})\(", text)}
    used -= {"trainable_params", "set_train", "apply", "batch", "map"}  # of MindSpore's
    assert len(used) > 15
    for name in used:
        assert any(hasattr(place, name) for place in places), name


def test_the_sentence_is_the_last_line_of_a_program() -> None:
    made = run_program("-c", "from mindspore_rec import EvictHook")
    assert "use EvictCallback" in made.stderr.rstrip().splitlines()[-1]
