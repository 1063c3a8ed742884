# SPDX-License-Identifier: Apache-2.0
"""The planted model: rows by position, a truth that does not move, figures that are right."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from datasets.common import batches
from datasets.common.blocks import Batch
from datasets.criteo.reader import CriteoReader
from datasets.synthetic import (
    BayesAUC,
    CategoryField,
    PlantedConfig,
    PlantedModel,
    bayes_auc,
    criteo_like,
    generate,
)
from datasets.synthetic.__main__ import main
from datasets.synthetic.counter import irwin_hall, stream_words, uniform
from datasets.synthetic.planted import zipf_probabilities, zipf_ranks

SMALL = PlantedConfig(
    (
        CategoryField(40, pairs=1.0),
        CategoryField(25, zipf=0.8, pairs=1.0),
        CategoryField(5000, zipf=1.3),
        CategoryField(3, zipf=0.0),
    ),
    counts=3,
)


def joined(blocks) -> Batch:
    parts = list(blocks)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**40), st.integers(1, 300), st.integers(1, 400), st.integers(-5, 5))
def test_rows_do_not_depend_on_blocks_or_range(start, rows, block_rows, seed) -> None:
    whole = joined(generate(rows + 10, seed, start, 1 << 20, SMALL))
    part = joined(generate(rows, seed, start + 10, block_rows, SMALL))
    for name, array in part.items():
        assert np.array_equal(array, whole[name][10:]), name


def test_seeds_differ_in_rows_and_in_truth() -> None:
    one, two = PlantedModel(SMALL, 1), PlantedModel(SMALL, 2)
    ranks = np.arange(40)
    assert abs(np.corrcoef(one.main_effect(0, ranks), two.main_effect(0, ranks))[0, 1]) < 0.6
    assert abs(np.corrcoef(one.main_effect(0, ranks), one.main_effect(1, ranks))[0, 1]) < 0.6
    assert np.mean(one.rows(0, 1000).ranks[:, 0] == two.rows(0, 1000).ranks[:, 0]) < 0.3


def test_a_value_has_one_key_and_one_effect_at_any_row() -> None:
    model = PlantedModel(SMALL, 3)
    early, late = model.rows(0, 3000), model.rows(10**9, 10**9 + 3000)
    for field in range(4):
        ranks = np.concatenate([early.ranks[:, field], late.ranks[:, field]])
        keys = np.concatenate([model.keys(early.ranks), model.keys(late.ranks)])[:, field]
        pairs = np.unique(np.stack([ranks, keys], axis=1), axis=0)
        assert len(pairs) == len(np.unique(ranks)) == len(np.unique(keys))
    fresh = PlantedModel(SMALL, 3)
    assert np.array_equal(fresh.keys(late.ranks), model.keys(late.ranks))


def test_labels_are_drawn_from_the_stated_probability() -> None:
    block = joined(generate(200_000, 4, config=SMALL))
    bayes, label = block["bayes"][:, 0].astype(float), block["label"][:, 0]
    assert abs(bayes.mean() - SMALL.click_rate) < 0.01
    bins = np.minimum((bayes * 20).astype(int), 19)
    for b in range(20):
        chosen = bins == b
        deviation = np.sqrt(np.sum(bayes[chosen] * (1 - bayes[chosen])) + 1e-9)
        assert abs(np.sum(label[chosen] - bayes[chosen])) < 4.5 * deviation + 1e-6
    assert abs(bayes_auc(bayes) - roc_auc_score(label, bayes)) < 0.005


def test_default_model_has_the_promised_figures() -> None:
    block = joined(generate(60_000, 1))
    assert block["ids"].shape == (60_000, 26) and block["dense"].shape == (60_000, 13)
    assert 0.78 < bayes_auc(block["bayes"]) < 0.82
    assert abs(block["bayes"].mean() - 0.25) < 0.01
    assert len(np.unique(block["ids"])) > 80_000


def test_interactions_are_there_and_a_linear_model_cannot_see_them() -> None:
    config = PlantedConfig(
        (CategoryField(30, pairs=1.0), CategoryField(30, pairs=1.0)),
        counts=0,
        main_share=0.0,
        pairs_share=1.0,
        counts_share=0.0,
        # at 0.5 the sigmoid is symmetric: the spread of a value's logits does not shift its mean
        click_rate=0.5,
    )
    block = joined(generate(60_000, 5, config=config))
    ranks = joined([{"r": PlantedModel(config, 5).rows(0, 60_000).ranks}])["r"]
    label, bayes = block["label"][:, 0], block["bayes"][:, 0].astype(float)
    logits = np.log(bayes / (1 - bayes))
    for values in ranks.T:
        means = np.bincount(values, logits, 30) / np.maximum(np.bincount(values, minlength=30), 1)
        assert np.var(means[values]) < 0.01 * np.var(logits)
    single = np.concatenate([np.eye(30)[ranks[:, 0]], np.eye(30)[ranks[:, 1]]], axis=1)
    pair = np.eye(900)[ranks[:, 0] * 30 + ranks[:, 1]].astype(np.float32)
    train, test = slice(0, 45_000), slice(45_000, None)

    def auc(features: np.ndarray) -> float:
        fitted = LogisticRegression(max_iter=200).fit(features[train], label[train])
        return float(roc_auc_score(label[test], fitted.decision_function(features[test])))

    best = bayes_auc(block["bayes"][test])
    assert auc(single) < 0.55
    assert auc(pair) > best - 0.02 > 0.7


@given(st.integers(1, 3000), st.floats(0, 3))
@settings(max_examples=40, deadline=None)
def test_zipf_ranks_have_the_stated_probabilities(cardinality, exponent) -> None:
    field = CategoryField(cardinality, zipf=exponent)
    probabilities = zipf_probabilities(field)
    assert len(probabilities) == cardinality
    assert abs(probabilities.sum() - 1) < 1e-9
    assert (np.diff(probabilities) <= 1e-12).all()
    edges = np.concatenate(([0.0], np.cumsum(probabilities)))
    middles = (edges[:-1] + edges[1:]) / 2
    assert np.array_equal(zipf_ranks(field, middles), np.arange(cardinality))
    assert zipf_ranks(field, np.array([0.0, 1 - 2**-53])).tolist() == [0, cardinality - 1]


def test_random_words_are_random() -> None:
    words = stream_words(0, "s", np.arange(200_000))
    draws, normals = uniform(words), irwin_hall(words)
    assert abs(draws.mean() - 0.5) < 0.003 and abs(draws.var() - 1 / 12) < 0.001
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.01
    assert abs(normals.mean()) < 0.01 and abs(normals.std() - 1) < 0.01
    assert np.abs(normals).max() < 3.47
    other = uniform(stream_words(1, "s", np.arange(200_000)))
    assert abs(np.corrcoef(draws, other)[0, 1]) < 0.01


PROBABILITIES = st.lists(st.floats(0, 1), min_size=2, max_size=25)


@given(PROBABILITIES)
def test_bayes_auc_is_the_weighted_share_of_ordered_pairs(values) -> None:
    pairs = [(p * (1 - q), p, q) for p in values for q in values]
    total = sum(weight for weight, _, _ in pairs)
    if total < 1e-12:
        return
    ordered = sum(w * (1.0 if p > q else 0.5 if p == q else 0.0) for w, p, q in pairs)
    assert bayes_auc(np.array(values)) == pytest.approx(ordered / total, abs=1e-9)


def test_measure_of_a_stream_is_that_of_the_whole() -> None:
    bayes = np.random.default_rng(0).beta(1, 3, 50_000)
    measure = BayesAUC()
    for part in np.array_split(bayes, 7):
        measure.update(part)
    assert measure.rows == 50_000
    assert measure.click_rate == pytest.approx(bayes.mean())
    assert measure.auc == pytest.approx(bayes_auc(bayes), abs=1e-4)
    expected = np.mean([log_loss([0, 1], [p, p], sample_weight=[1 - p, p]) for p in bayes[:300]])
    some = BayesAUC()
    some.update(bayes[:300])
    assert some.log_loss == pytest.approx(expected)


def test_every_format_has_the_same_rows(tmp_path) -> None:
    expected = joined(generate(3000, 6, start=5, config=criteo_like(2000)))
    for form in ("tsv", "mindrecord", "parquet"):
        arguments = ["--rows", "3000", "--seed", "6", "--start", "5", "--max-cardinality", "2000"]
        arguments += ["--output", str(tmp_path / form), "--format", form]
        arguments += ["--json", str(tmp_path / f"{form}.json")]
        assert main(arguments + ([] if form == "tsv" else ["--with-bayes"])) == 0
        figures = json.loads((tmp_path / f"{form}.json").read_text())
        assert figures["rows"] == 3000
        assert figures["bayes_auc"] == pytest.approx(bayes_auc(expected["bayes"]), abs=1e-4)
    columns = ("ids", "dense", "label", "bayes")
    for form in ("mindrecord", "parquet"):
        found = joined(batches(tmp_path / form, 777, columns=columns))
        assert all(np.array_equal(found[name], expected[name]) for name in columns)
    text = joined(CriteoReader(tmp_path / "tsv" / "data.tsv", strict=True))
    assert all(np.array_equal(text[name], expected[name]) for name in ("ids", "dense", "label"))
    with pytest.raises(ValueError, match="format 'tsv'"):
        batches(tmp_path / "tsv", 2)


def test_text_has_missing_and_negative_counts(tmp_path) -> None:
    counts = PlantedModel(criteo_like(100), 1).rows(0, 20_000).counts
    assert 0.08 < np.isnan(counts).mean() < 0.12
    assert set(np.unique(counts[counts < 0])) == {-1.0, -2.0}
    assert np.nanmax(counts) > 500


def test_bad_arguments_of_the_command_end_it(tmp_path, capsys) -> None:
    arguments = ["--rows", "10", "--seed", "1", "--output", str(tmp_path / "a")]
    assert main([*arguments, "--format", "tsv", "--with-bayes"]) == 2
    assert main([*arguments, "--format", "tsv", "--start", "-1"]) == 1
    assert "at least 0" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CategoryField(0), "cardinality"),
        (lambda: CategoryField(9, zipf=-1), "zipf"),
        (lambda: CategoryField(9, main=float("nan")), "main"),
        (lambda: PlantedConfig(()), "fields"),
        (lambda: PlantedConfig((CategoryField(9),)), "pairs_share must be 0"),
        (lambda: PlantedConfig(SMALL.fields, counts=0), "counts_share must be 0"),
        (lambda: PlantedConfig(SMALL.fields, click_rate=1.0), "click_rate"),
        (lambda: PlantedConfig(SMALL.fields, main_share=-1), "shares"),
        (lambda: criteo_like(0), "max_cardinality"),
        (lambda: next(generate(-1, 1)), "rows and start"),
        (lambda: next(generate(1, 1, block_rows=0)), "block_rows"),
    ],
)
def test_bad_arguments_are_refused(make, words) -> None:
    with pytest.raises(ValueError, match=words):
        make()
