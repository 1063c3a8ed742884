# SPDX-License-Identifier: Apache-2.0
"""The dry run of tiers against a model of one dict a tier, and its command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.plan import KeyLog, Tiers, plan_tiers
from mindspore_rec.plan.__main__ import main
from mindspore_rec.plan.index import KeyIndex
from mindspore_rec.plan.tier_runs import LfuTiers, LruTiers, TierCounts, TierRun


class Model:
    """Rows as (last step and place in it, count), in one dict a tier."""

    def __init__(self, capacities, order):
        self.capacities, self.order = capacities, order
        self.tiers: list[dict] = [{} for _ in range(len(capacities) + 1)]
        self.position = 0
        self.start_counting()

    def start_counting(self):
        self.found = [0] * len(self.tiers)
        self.written = [0] * len(self.tiers)
        self.new = 0

    def step(self, keys):
        host = self.tiers[0]
        for key in set(keys):
            where = [i for i, tier in enumerate(self.tiers) if key in tier]
            assert len(where) <= 1
            if where:
                self.found[where[0]] += 1
                host[key] = self.tiers[where[0]].pop(key)
            else:
                self.new += 1
                host[key] = (0, 0)
        for key in keys:
            host[key] = (self.position, host[key][1] + 1)
            self.position += 1
        for i, capacity in enumerate(self.capacities):
            tier, below = self.tiers[i], self.tiers[i + 1]

            def rank(key, tier=tier):
                last, count = tier[key]
                return (last,) if self.order == "lru" else (count, last)

            for key in sorted(tier, key=rank)[: max(0, len(tier) - capacity)]:
                below[key] = tier.pop(key)
                self.written[i + 1] += 1

    def counts(self):
        return TierCounts(self.found, self.written, [len(t) for t in self.tiers], self.new)


keys = st.one_of(st.integers(0, 9), st.sampled_from([-1, -(2**63), 2**63 - 1, 40]))
logs = st.lists(st.lists(keys, max_size=12), min_size=1, max_size=25)


@given(logs, st.lists(st.integers(1, 9), min_size=1, max_size=2).map(tuple), st.integers(0, 5))
@settings(max_examples=200)
def test_both_orders_equal_a_dict_a_tier(batches, capacities, warm_up):
    runs: list[TierRun] = [LruTiers(), LfuTiers(capacities)]
    models = [Model(capacities, "lru"), Model(capacities, "lfu")]
    index = KeyIndex()
    for step, batch in enumerate(batches):
        if step == warm_up:
            for run, model in zip(runs, models, strict=True):
                run.start_counting()
                model.start_counting()
        distinct = index.distinct(np.array(batch, np.int64))
        for run in runs:
            run.add(distinct)
        for model in models:
            model.step(batch)
    index.close()
    for run, model in zip(runs, models, strict=True):
        assert run.counts(capacities) == model.counts()


@pytest.mark.parametrize("capacities", [(700,), (500, 900)])
def test_larger_logs_equal_a_dict_a_tier(capacities):
    # Larger than the pools of rows that may go next.
    rng = np.random.default_rng(1)
    runs: list[TierRun] = [LruTiers(), LfuTiers(capacities)]
    models = [Model(capacities, "lru"), Model(capacities, "lfu")]
    index = KeyIndex()
    for step in range(60):
        batch = rng.zipf(1.2, 400) % 5000
        if step == 20:
            for run, model in zip(runs, models, strict=True):
                run.start_counting()
                model.start_counting()
        distinct = index.distinct(batch)
        for run, model in zip(runs, models, strict=True):
            run.add(distinct)
            model.step(batch.tolist())
    index.close()
    for run, model in zip(runs, models, strict=True):
        assert run.counts(capacities) == model.counts()


IDS = np.random.default_rng(5).zipf(1.3, (600, 2)) % 200


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in IDS))
    return path


def test_a_plan_adds_up(log):
    choices = [*Tiers.parse("5%,20%,90"), *Tiers.parse("host=30,remote=25%,ssd")]
    plan = plan_tiers(KeyLog([log], [0, 1]), choices, 220, 50, ("lru", "lfu"), warm_up=4)
    distinct = len(np.unique(IDS))
    assert (plan.samples, plan.steps, plan.lookups, plan.keys) == (600, 12, 1200, distinct)
    sizes = [len(np.unique(batch)) for batch in np.split(IDS, 12)]
    assert plan.most_unique_keys == max(sizes)
    assert plan.unique_keys == pytest.approx(np.mean(sizes[4:]))
    assert (plan.row_bytes, plan.moved_row_bytes) == (220, 212)
    assert len(plan.outcomes) == 8
    first_seen = len(np.unique(IDS)) - len(np.unique(IDS[:200]))
    for outcome in plan.outcomes:
        assert sum(tier.served for tier in outcome.tiers) + outcome.new == pytest.approx(1)
        assert outcome.new * plan.unique_keys * 8 == pytest.approx(first_seen)
        assert sum(tier.rows for tier in outcome.tiers) == distinct
        host = outcome.tiers[0]
        assert host.rows == host.capacity
        assert host.memory_bytes == host.capacity * 220
        assert outcome.fits == (host.capacity >= plan.most_unique_keys)
        for tier in outcome.tiers[1:]:
            assert tier.read_rows == pytest.approx(tier.served * plan.unique_keys)
            assert tier.moved_bytes == pytest.approx((tier.read_rows + tier.written_rows) * 212)
        assert outcome.tiers[-1].memory_bytes == distinct * 16
    by_size = [outcome.tiers[0].served for outcome in plan.outcomes[:3]]
    assert by_size == sorted(by_size)
    assert [tier.capacity for tier in plan.outcomes[3].tiers] == [30, round(distinct / 4), None]


def test_the_command_prints_a_line_a_choice_or_a_tier(log, tmp_path, capsys):
    out = tmp_path / "plan.json"
    command = [str(log), "--keys", "0-1", "--batch-size", "50", "--order", "lru,lfu"]
    command += ["--tiers", "5%,50%", "--warm-up", "6", "--json", str(out)]
    assert main(command) == 0
    text = capsys.readouterr().out.splitlines()
    figures = json.loads(out.read_text())
    assert figures["settings"]["tiers"][0] == {"host": 0.05, "remote": None, "lower": ["ssd"]}
    assert figures["warm_up"] == 6 and len(figures["outcomes"]) == 4
    assert text[0].startswith("600 samples, 12 steps, 1,200 lookups,")
    assert text[1].endswith("; the first 6 steps do not count")
    assert text[3].split()[:2] == ["order", "host"]
    for line, outcome in zip(text[4:8], figures["outcomes"], strict=True):
        host, ssd = outcome["tiers"]
        assert line.split()[0] == outcome["order"]
        assert f"{host['capacity']:,}" in line and ("*" in line) == (not outcome["fits"])
        assert f"{100 * host['served']:.2f} %" in line and f"{100 * ssd['served']:.2f} %" in line
    assert "* too small" in text[9]
    command = [str(log), "--keys", "0", "--tiers", "host=100,remote=0.2,ssd"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()[4:]
    assert [line.split()[1] for line in lines[:3]] == ["host", "remote", "ssd"]
    assert lines[3].split()[:2] == ["lru", "new"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tiers", "5", "--admission", "2"], "--admission must be left out with --tiers"),
        (["--tiers", "5", "--capacity", "2"], "--capacity must be left out with --tiers"),
        (["--tiers", "5", "--plot", "x.png"], "--plot must be left out with --tiers"),
        (["--tiers", "5", "--warm-up", "1"], "warm_up must be below the log's 1 steps, got 1"),
        (["--tiers", "5", "--warm-up", "-1"], "warm_up must be in"),
        (["--tiers", "5", "--order", "mru"], "order must be one of 'lru', 'lfu'"),
        (["--tiers", "5", "--json", "/dev/null/no/plan.json"], "Not a directory: '/dev/null/no'"),
        (["--warm-up", "1"], "--warm-up needs --tiers"),
    ],
)
def test_bad_options_of_tiers_are_one_line(log, capsys, arguments, message):
    assert main([str(log), "--keys", "0", *arguments]) == 1
    written = capsys.readouterr()
    assert message in written.err and written.out == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("many", "must be rows or shares"),
        ("0", "host must be in"),
        ("150%", "host must be rows or a share"),
        ("remote=5", "must be rows or shares"),
        ("host=5,remote=5", "remote must have a limit where the SSD is below it, and only there"),
        ("host=5,remote,ssd", "remote must have a limit where the SSD is below it"),
        ("host=5,ssd,remote=7", "lower must be"),
        ("host=5,ssd=7", "must be rows or shares"),
        ("host=5,host=6,ssd", "must be rows or shares"),
        ("host=5", "lower must be"),
    ],
)
def test_tiers_that_make_no_sense_are_refused(log, capsys, text, message):
    with pytest.raises(ValueError, match=message):
        Tiers.parse(text)
    with pytest.raises(SystemExit):
        main([str(log), "--keys", "0", "--tiers", text])
    assert "--tiers" in capsys.readouterr().err
