# SPDX-License-Identifier: Apache-2.0
"""Tasks, baselines and batches of `next_item.py`, beside plain loops on drawn events."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.sequences import baselines, nets
from benchmarks.sequences.figures import difference, figures_of
from benchmarks.sequences.tasks import Events, Part, last_events, part_of, read_retail
from datasets.synthetic.ratings import write_ratings
from mindspore_rec.metrics import functional
from tests.support.nightly import nightly
from tests.support.processes import ROOT, run_python

TIMES = 400


@pytest.fixture(scope="module")
def events() -> Events:
    rng = np.random.default_rng(1)
    pairs = np.unique(rng.integers(0, (12, 30), (260, 2)), axis=0)
    user, item = rng.permutation(pairs).T
    return Events(user, item, np.sort(rng.integers(0, TIMES, len(user)) // 9 * 9))


@pytest.fixture(scope="module", params=[False, True], ids=["event", "together"])
def part(events: Events, request: pytest.FixtureRequest) -> Part:
    return part_of(events, 250, 350, request.param, 10_000, 0)


def history_of(part: Part, row: int) -> list[int]:
    offsets = part.rows.history_offsets
    return part.rows.history[offsets[row] : offsets[row + 1]].tolist()


def test_nothing_of_the_future_is_known(events: Events, part: Part) -> None:
    assert part.events.time.max() < 250 <= part.rows.time.min() <= part.rows.time.max() < 350
    catalogue = np.unique(events.item[events.time < 250])
    assert part.items == len(catalogue) < len(np.unique(events.item)) + 1
    together = len(part.rows.target) > len(part.rows.user)
    for row, (user, time) in enumerate(zip(part.rows.user, part.rows.time, strict=True)):
        until = events.time < time if together else events.time <= time
        earlier = events.item[(events.user == user) & until]
        assert set(catalogue[history_of(part, row)]) <= set(earlier)
        begin, end = part.rows.target_offsets[row : row + 2]
        targets = catalogue[part.rows.target[begin:end]]
        assert set(targets) <= set(events.item[(events.user == user) & (events.time == time)])
    expected = events.item[(events.time >= 250) & (events.time < 350)]
    assert part.unknown == np.isin(expected, catalogue, invert=True).mean()


def test_rows_are_drawn_by_the_seed(events: Events) -> None:
    drawn = [part_of(events, 250, 350, False, 7, seed).rows for seed in (0, 0, 1)]
    assert [len(rows.user) for rows in drawn] == [7] * 3
    assert drawn[0].target.tolist() == drawn[1].target.tolist() != drawn[2].target.tolist()
    assert drawn[0].history.tolist() == drawn[1].history.tolist()


def test_the_last_event_is_left_out(events: Events) -> None:
    part = last_events(events, 3)
    assert len(part.rows.user) == part.users and len(part.rows.target) == part.users
    assert len(part.events.user) + part.users == len(events.user)
    assert part.rows.history.tolist() == part.events.item.tolist()


def plain_ranks(part: Part, scores: np.ndarray) -> np.ndarray:
    ranks = []
    for row, mine in enumerate(scores):
        begin, end = part.rows.target_offsets[row : row + 2]
        targets = part.rows.target[begin:end]
        others = np.delete(mine, [*history_of(part, row), *targets])
        for target in targets:
            score = mine[target]
            ranks.append(1 + (others > score).sum() + (others == score).sum() / 2)
    return np.array(ranks)


def test_ranks_of_plain_loops(part: Part) -> None:
    scores = np.random.default_rng(0).integers(0, 9, (len(part.rows.user), part.items))
    ranks = baselines.ranks_of(part, lambda begin, end: scores[begin:end])
    assert ranks.tolist() == plain_ranks(part, scores).tolist()
    with pytest.raises(ValueError, match="a score is NaN"):
        baselines.ranks_of(part, lambda begin, end: scores[begin:end] * np.nan)


def test_the_markov_chain_of_plain_loops(part: Part) -> None:
    counts: dict[tuple[int, int], float] = defaultdict(float)
    for user in range(part.users):
        mine = part.events.item[part.events.user == user].tolist()
        for place, item in enumerate(mine):
            for step, later in enumerate(mine[place + 1 : place + 4]):
                counts[item, later] += 0.7**step
    sums = np.zeros(part.items)
    for (item, _), count in counts.items():
        sums[item] += count
    scores = np.zeros((len(part.rows.user), part.items))
    for row in range(len(scores)):
        for age, item in enumerate(history_of(part, row)[::-1][:10]):
            for (first, later), count in counts.items():
                if first == item:
                    scores[row, later] += 0.5**age * count / sums[item]
    ranks = baselines.markov(part, {"skip": 0.7, "norm": 1.0, "last": 10, "decay": 0.5}, 0)
    # Sums in another order may tie other items.
    np.testing.assert_allclose(ranks, plain_ranks(part, scores.round(6)), atol=1.0)
    assert np.mean(ranks == plain_ranks(part, scores.round(6))) > 0.8


def test_both_forms_of_ease_agree(part: Part) -> None:
    few = Part(part.events, part.rows, 100, part.items, 0.0)  # more users, who have no events
    assert part.users < part.items < few.users
    by_users, by_items = (baselines._ease_weights(each, 20.0) for each in (part, few))
    np.testing.assert_allclose(by_users, by_items, atol=1e-5)
    matrix = baselines.seen(part).toarray()
    gram = np.linalg.inv(matrix.T @ matrix + 20 * np.eye(part.items))
    expected = -gram / gram.diagonal()
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(by_users, expected, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in baselines.BASELINES if not n.startswith(("ALS", "B"))])
def test_each_baseline_ranks_each_target(part: Part, name: str) -> None:
    for settings in baselines.GRIDS[name]:
        ranks = baselines.BASELINES[name](part, settings, 0)
        assert len(ranks) == len(part.rows.target)
        assert (ranks >= 1).all() and (ranks <= part.items).all()


def test_the_interval_of_a_difference(part: Part) -> None:
    rng = np.random.default_rng(2)
    good, bad = (rng.integers(1, most, len(part.rows.target)).astype(float) for most in (3, 60))
    same = difference(part, good, good)
    assert (same["difference"], same["low"], same["high"]) == (0, 0, 0)
    beside = difference(part, good, bad)
    gap = figures_of(part, good)["ndcg"] - figures_of(part, bad)["ndcg"]
    assert beside["difference"] == pytest.approx(gap)
    assert 0 < beside["low"] < beside["difference"] < beside["high"]
    recall = functional.recall(good, 10, part.rows.target_offsets)
    assert figures_of(part, good)["recall"] == recall


def test_the_interval_of_several_seeds(part: Part) -> None:
    rng = np.random.default_rng(3)
    ranks = rng.integers(1, 30, (3, len(part.rows.target))).astype(float)
    both = difference(part, ranks, ranks[0])
    gaps = [difference(part, each, ranks[0])["difference"] for each in ranks]
    assert both["difference"] == pytest.approx(np.mean(gaps))
    assert difference(part, ranks[:1], ranks[1]) == difference(part, ranks[0], ranks[1])


def plain_pairs(events: Events, together: bool) -> list[tuple[int, int]]:
    """Return each event with an earlier event of its user, after the event that predicts it."""
    pairs = []
    for event, (user, time) in enumerate(zip(events.user, events.time, strict=True)):
        earlier = [k for k in range(event) if events.user[k] == user]
        if together:
            earlier = [k for k in earlier if events.time[k] < time]
        if earlier:
            pairs.append((earlier[-1], event))
    return pairs


@pytest.mark.parametrize("half_life", [None, 1e-3])
def test_each_target_is_in_one_batch(
    part: Part, half_life: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nets, "EVENTS", 32)
    monkeypatch.setattr(nets, "_LISTS", 4)
    together = len(part.rows.target) > len(part.rows.user)
    events, known = part.events, plain_pairs(part.events, together)
    settings = {"length": 5, "half_life": half_life, "sampled": None}
    found = []
    for batch in nets.batches(part, together, settings, np.random.default_rng(0)):
        values, offsets, place, row, target, weight, sums = batch
        assert values.shape == place.shape == sums.shape == (32,) and offsets.shape == (5,)
        assert (np.diff(offsets) >= 0).all() and offsets[-1] == 32
        counts = weight > 0
        np.testing.assert_allclose(np.bincount(row, weight, 32), sums, rtol=1e-6)
        found += list(zip(values[place[row]][counts], target[counts], strict=True))
    assert sorted(found) == sorted((events.item[a], events.item[b]) for a, b in known)


def test_sampled_items_have_the_targets_and_each_item_once(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nets, "EVENTS", 8)
    part = part_of(events, 250, 350, False, 10_000, 0)
    settings = {"length": 5, "half_life": None}
    rng = np.random.default_rng(0)
    for number in (12, part.items):
        for batch in nets.batches(part, False, {**settings, "sampled": number}, rng):
            target, weight, _, some, rarity, own = batch[4:]
            assert len(np.unique(some)) == len(some) == number
            assert np.isin(target, some).all()
            assert (rarity >= 1).all() and (own[weight == 0] == 1).all()
            if number == part.items:  # the softmax over all items
                assert (rarity == 1).all() and (own == 1).all()
    together = nets.batches(part, True, {**settings, "sampled": 12}, rng)
    with pytest.raises(ValueError, match="need the softmax over all items"):
        next(together)


@pytest.mark.parametrize("kind", ["HSTU", *nightly("SASRec")])
def test_a_network_learns_a_chain(kind: str) -> None:
    user, place = np.divmod(np.arange(900), 9)
    events = Events(user, (user + place) % 12, np.arange(900))
    part = part_of(events, 720, 900, False, 1000, 0)
    settings = {**nets.GRIDS["movielens"][0], "dim": 8, "dropout": 0.1, "epochs": 40}
    settings["sampled"] = None
    net = nets.trained(kind, part, False, settings, 0)
    ranks = baselines.ranks_of(part, nets.net_scores(net, part, 50))
    assert functional.recall(ranks, 1) > 0.9  # 0.1 by chance


def test_first_purchases_of_online_retail(tmp_path: Path) -> None:
    (tmp_path / "online-retail").mkdir()
    lines = [
        ("0", "A", 5, "2011-01-01 09:00", 9),
        ("1", "B", 2, "2011-01-01 10:00", 7),
        ("1", "A", 1, "2011-01-01 10:00", 7),
        ("C2", "A", -1, "2011-01-02 10:00", 8),  # a cancellation
        ("3", "A", 1, "2011-01-03 10:00", None),
        ("4", "B", 1, "2011-01-04 10:00", 7),  # bought before
    ]
    names = ["InvoiceNo", "StockCode", "Quantity", "InvoiceDate", "CustomerID"]
    pd.DataFrame(lines, columns=names).to_csv(
        tmp_path / "online-retail" / "online_retail.csv", index=False
    )
    for by_code, items in ((False, [0, 1, 0]), (True, [0, 0, 1])):
        events = read_retail(tmp_path, by_code)
        assert (events.user.tolist(), events.item.tolist()) == ([0, 1, 1], items)


@pytest.mark.parametrize("kinds", [[], *nightly(["SASRec", "HSTU"])])
def test_a_run_writes_figures(kinds: list[str], tmp_path: Path) -> None:
    write_ratings(tmp_path)
    out = tmp_path / "figures.json"
    printed = run_python(
        ROOT / "benchmarks" / "next_item.py", "--data", str(tmp_path), "--tasks", "movielens",
        "--days", "5", "--rows", "100", "--baselines", "popularity", "Markov chain",
        "--json", str(out), "--seeds", "2", "--nets", *kinds,
    )  # fmt: skip
    assert "Markov chain" in printed
    figures = json.loads(out.read_text())
    task = figures["tasks"]["movielens"]
    assert task["test"]["rows"] == 100 and figures["machine"]["cpus"] >= 1
    assert list(task["nets"]) == [f"{k}{end}" for k in kinds for end in ("", " + Markov chain")]
    for each in [*task["baselines"].values(), *task["nets"].values()]:
        assert 0 <= each["ndcg"] <= each["recall"] <= 1
        assert each["beside_best"]["low"] <= each["beside_best"]["high"]
