# SPDX-License-Identifier: Apache-2.0
"""A configuration's numbers are those of YAML 1.2, and no key of it is read over another."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.common.config import from_mapping, read_yaml
from models.deepfm.config import Config
from models.mmoe.config import Config as MmoeConfig

DATA = "data: {kind: criteo}\n"


def read(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return read_yaml(path, Config)


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "+1e-3", "10.e-4", ".1e-2", "0.001", "1.0e-3"])
def test_a_rate_is_written_in_any_form(tmp_path, text):
    config = read(tmp_path, f"{DATA}optimizer: {{learning_rate: {text}}}\n")
    assert config.optimizer.learning_rate == 0.001


def test_digits_may_be_grouped(tmp_path):
    assert read(tmp_path, f"{DATA}train: {{epochs: 60_000}}\n").train.epochs == 60_000
    config = read(tmp_path, f"{DATA}model: {{hidden: [1_024, 64]}}\nembedding: {{std: 1_000}}\n")
    assert config.model.hidden == (1_024, 64) and config.embedding.std == 1_000
    with pytest.raises(ValueError, match=r"'train.epochs' must be of type int, got '60_'"):
        read(tmp_path, f"{DATA}train: {{epochs: 60_}}\n")


def test_a_text_that_is_no_number_stays_one(tmp_path):
    with pytest.raises(ValueError, match="'optimizer.learning_rate' must be .* got '1e-3x'"):
        read(tmp_path, f"{DATA}optimizer: {{learning_rate: 1e-3x}}\n")


def test_a_count_with_an_exponent_is_no_whole_number(tmp_path):
    with pytest.raises(ValueError, match=r"'train.epochs' must be of type int, got 10.0"):
        read(tmp_path, f"{DATA}train: {{epochs: 1e1}}\n")


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        (
            f"{DATA}train: {{epochs: 2}}\nembedding: {{std: 4}}\ntrain: {{batch_size: 7}}\n",
            "train",
            4,
        ),
        (f"{DATA}train:\n  epochs: 2\n  epochs: 3\n", "epochs", 4),
    ],
)
def test_a_key_that_is_given_twice_is_an_error(tmp_path, text, key, line):
    with pytest.raises(
        ValueError, match=rf"run.yaml: line {line}, column .: '{key}' is given twice"
    ):
        read(tmp_path, text)


def test_a_merged_mapping_may_be_written_over(tmp_path):
    text = f"{DATA}embedding: &e {{embedding_dim: 4, std: 0.1}}\nmodel: {{}}\n"
    assert read(tmp_path, text).embedding.embedding_dim == 4
    text = f"base: &e {{std: 4}}\n{DATA}embedding: {{<<: *e, std: 5}}\n"
    with pytest.raises(ValueError, match="'base' is not known"):  # and not: 'std' is given twice
        read(tmp_path, text)


def test_a_kind_that_a_model_does_not_take_is_what_is_wrong():
    with pytest.raises(ValueError, match="'data.kind' must be one of 'census_income', got 'syn"):
        from_mapping(MmoeConfig, {"data": {"kind": "synthetic", "rows": 100}})
