# SPDX-License-Identifier: Apache-2.0
"""The YAML file of the command: what is legal, and one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mindspore_rec.command.continued import RESUMED, changes
from mindspore_rec.command.settings import (
    EarlyStoppingSettings,
    KafkaSource,
    ModelSettings,
    SplitSettings,
    read_settings,
    settings_of,
)
from mindspore_rec.common.yaml_text import parse_yaml
from tests.command.click_table import YAML

COLUMNS = {"user": "category", "clicked": "label"}


def settings(**more: Any) -> Any:
    return settings_of({"source": "clicks.csv", "columns": COLUMNS, **more})


def test_a_short_file_has_the_defaults():
    made = settings()
    assert made.model == ModelSettings("dcn_v2", {})
    assert made.split.shares() == (0.8, 0.1, 0.1)
    assert (made.train.epochs, made.train.workers) == (3, 1)
    assert made.train.stopping == EarlyStoppingSettings(None, 2)


def test_everything_can_be_set():
    made = settings(
        split={"by": "random", "train": 0.7, "valid": 0.1, "seed": 3},
        model={"name": "deepfm", "hidden": [64, 32]},
        train={"epochs": 5, "early_stopping": {"metric": "log_loss", "patience": 1}},
    )
    assert made.model == ModelSettings("deepfm", {"hidden": [64, 32]})
    assert made.split.shares() == (0.7, 0.1, 0.2)
    assert made.train.stopping == EarlyStoppingSettings("log_loss", 1)
    assert settings(train={"early_stopping": False}).train.stopping is None


def test_a_plateau_has_its_own_patience():
    plateau = {"schedule": "plateau"}
    assert settings(train=plateau).train.stopping == EarlyStoppingSettings(None, 1)
    set_by_hand = {**plateau, "early_stopping": {"patience": 3}}
    assert settings(train=set_by_hand).train.stopping == EarlyStoppingSettings(None, 3)


def test_a_topic_is_a_source():
    made = settings(source={"kafka": {"servers": "localhost:9092", "topic": "clicks"}})
    assert isinstance(made.source, KafkaSource) and made.source.kafka.topic == "clicks"


@pytest.mark.parametrize(
    ("split", "shares"),
    [
        (SplitSettings(), (0.8, 0.1, 0.1)),
        (SplitSettings(train=0.5), (0.5, 0.1, 0.4)),
        (SplitSettings(train=0.8, valid=0.2), (0.8, 0.2, 0.0)),
        (SplitSettings(valid="a.csv"), (0.9, 0.0, 0.1)),
        (SplitSettings(valid="a.csv", test="b.csv"), (1.0, 0.0, 0.0)),
        (SplitSettings(test=("a.csv", "b.csv")), (0.9, 0.1, 0.0)),
    ],
)
def test_shares_of_a_split(split, shares):
    assert split.shares() == pytest.approx(shares)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a typo": ({"trian": {}}, "'trian' is not known: did you mean 'train'?"),
    "a typo inside": ({"train": {"epoch": 1}}, "'train.epoch' is not known: did you mean 'epochs'"),
    "no near key": (
        {"train": {"zzz": 1}},
        "'train.zzz' is not known: known are epochs, batch_size",
    ),
    "a text": ({"train": {"epochs": "3"}}, "'train.epochs' must be a whole number, got '3'"),
    "a bool": ({"train": {"epochs": True}}, "'train.epochs' must be a whole number, got True"),
    "below": ({"train": {"epochs": 0}}, "'train': epochs must be in [1, "),
    "shares": ({"split": {"train": 0.9, "valid": 0.2}}, "'split': the shares must add up to at"),
    "a schedule": (
        {"train": {"schedule": "step"}},
        "'train.schedule' must be constant, cosine or ",
    ),
    "a decay": ({"train": {"ema": 1.0}}, "'train': ema must be"),
    "a stop": (
        {"train": {"schedule": "plateau", "early_stopping": False}},
        "'train': schedule must not be plateau if early_stopping is false",
    ),
    "a long warm-up": (
        {"train": {"schedule": "plateau", "warm_up": 0.6, "evaluations": 2}},
        "'train': warm_up must be at most 1 / evaluations",
    ),
    "a choice": ({"split": {"by": "user"}}, "'split.by' must be time, random or null, got 'user'"),
    "no columns": ({"columns": {}}, "'columns' must name at least a label"),
    "source": ({"source": 3}, "'source' must be a text, a list or a mapping, got 3"),
    "topic": ({"source": {"kafka": {"servers": "a"}}}, "'source.kafka.topic' is missing"),
    "sample": ({"sample": {"negatives": 0}}, "'sample': negatives must be in (0, 1], got 0.0"),
    "model": ({"model": 3}, "'model' must be a name, or a mapping with the key name, got 3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_sentence_with_its_place(name):
    more, sentence = WRONG[name]
    with pytest.raises(ValueError) as error:
        settings(**more)
    assert str(error.value).startswith(sentence) and "\n" not in str(error.value)


def test_the_first_sentence_of_a_wrong_file_names_it(tmp_path: Path):
    path = tmp_path / "clicks.yaml"
    for text, sentence in (
        (
            "source: a\ncolumns: {a: label}\nsource: b\n",
            "line 3, column 1: 'source' is given twice",
        ),
        ("source: [a\n", "line 2, column 1: "),
        ("columns: {a: label}\n", "'source' is missing"),
        ("- a\n", "the file must be a mapping"),
        ("", "the file must be a mapping"),
        ("a: " + "[" * 5000, "line 1, column 67: more than 64 values in one another"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError) as error:
            read_settings(path)
        assert str(error.value).startswith(f"{path}: {sentence}"), error.value
    with pytest.raises(ValueError, match="none.yaml: No such file or directory"):
        read_settings(tmp_path / "none.yaml")


# Replacement in the YAML, and the changed settings that `train --resume` refuses.
CHANGES = [
    (
        ("clicked: label", "clicked: {kind: label, positive: 0}"),
        ["'columns.clicked' was label and is {'kind': 'label', 'positive': 0}"],
    ),
    (("price: number", "price: ignored"), ["'columns.price' was number and is ignored"]),
    (("  price: number\n", ""), ["'columns.price' was number and is absent"]),
    (("layers: 1", "layers: 2"), ["'model.layers' was 1 and is 2"]),
    (("dcn_v2, hidden: [32], layers: 1", "deepfm"), ["'model.name' was dcn_v2 and is deepfm"]),
    (("batch_size: 64", "batch_size: 8"), ["'train.batch_size' was 64 and is 8"]),
    (("model:", "split: {seed: 1}\nmodel:"), ["'split.seed' was 0 and is 1"]),
    (
        (
            "  user: {kind: category, group: true}\n  item: category\n",
            "  item: category\n  user: \
{kind: category, group: true}\n",
        ),
        [
            "'columns' had the order ['time', 'user', 'item', 'tags', 'price', 'clicked'] and has "
            "the order ['time', 'item', 'user', 'tags', 'price', 'clicked']"
        ],
    ),
    (("price: number", "price: {kind: number}"), []),
    (("price: number", "price: number\n  session: ignored"), []),
    (("clicks.parquet", "moved/clicks.parquet"), []),
    (("epochs: 3", "epochs: 4, early_stopping: false, evaluations: 2"), []),
    (("learning_rate: 0.03", "learning_rate: 0.01, checkpoint_seconds: 1"), []),
]


@pytest.mark.parametrize(("replaced", "expected"), CHANGES)
def test_a_resumed_training_keeps_model_labels_and_batches(replaced, expected):
    assert replaced[0] in YAML
    before, now = (settings_of(parse_yaml(text)) for text in (YAML, YAML.replace(*replaced)))
    assert changes(before, now, RESUMED) == expected
    assert not changes(before, before)


def test_paths_begin_in_the_folder_of_the_file(tmp_path: Path):
    (tmp_path / "clicks.yaml").write_text(
        "source: [data/*.csv, s3://bucket/a.csv, /data/b.csv]\n"
        "columns: {user: category, clicked: label}\n"
        "split: {valid: may.csv, test: 0.1}\n"
        "model: my_nets.py:MyNet\n"
    )
    made = read_settings(tmp_path / "clicks.yaml")
    assert made.source == (f"{tmp_path}/data/*.csv", "s3://bucket/a.csv", "/data/b.csv")
    assert (made.split.valid, made.split.test) == (f"{tmp_path}/may.csv", 0.1)
    assert made.model.name == f"{tmp_path}/my_nets.py:MyNet"


@pytest.mark.parametrize(
    "text",
    [
        "? [a]\n: 1",
        "? {a: 1}\n: 1",
        "!!bool maybe",
        "!!int x",
        "!!float x",
        "!!python/name:os.x ''",
    ],
)
def test_yaml_that_python_cannot_hold_is_a_value_error(text):
    with pytest.raises(ValueError, match="line 1|type"):
        parse_yaml(text)


def test_values_are_those_of_yaml_1_2():
    text = "{a: no, b: on, c: 1e-3, d: 010, e: 1:30, f: 2026-01-01, g: true, h: ~, i: .5, j: -3}"
    assert parse_yaml(text) == {
        "a": "no",
        "b": "on",
        "c": 0.001,
        "d": 10,
        "e": "1:30",
        "f": "2026-01-01",
        "g": True,
        "h": None,
        "i": 0.5,
        "j": -3,
    }
