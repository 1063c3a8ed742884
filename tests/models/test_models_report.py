# SPDX-License-Identifier: Apache-2.0
"""What `--report` says of a run: pictures of tables and tiers, the slowest operators."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mindspore_rec import _native, tables_of
from models.common import operators as operators_module
from models.common.config import from_mapping
from models.common.data import Data
from models.common.model import figures, train
from models.common.operators import OperatorTimes
from models.common.report import write_report
from models.deepfm.config import MODEL

ROWS, BATCH = 3000, 50


def planted(rows: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 400, (rows, 3)) + 400 * np.arange(3)
    return {"ids": ids, "label": (ids[:, :1] % 2).astype(np.float32)}


@pytest.fixture(scope="module")
def data() -> Data:
    rows = planted(ROWS, 0)

    def batches(batch_size, epochs):
        for at in range(0, ROWS, batch_size):
            yield {name: column[at : at + batch_size] for name, column in rows.items()}

    return Data("planted", 3, 0, batches, ROWS, [planted(200, 1)])


def run_of(data: Data, name: str, embedding: dict, evaluations: int = 3):
    values = {
        "data": {"kind": "criteo"},  # not opened: what follows is given the data itself
        "embedding": {"embedding_dim": 4, **embedding},
        "model": {"hidden": [64]},
        "train": {"batch_size": BATCH, "evaluations": evaluations},
    }
    config = from_mapping(MODEL.config, values)
    run = train(MODEL, config, data, name, progress=False, operators=True)
    for table in tables_of(run.model.train_network):
        table.close()
    return config, run


def test_operators_are_measured_in_the_middle(graph_mode, data, unique):
    _, run = run_of(data, unique(), {})
    times = run.operators
    assert (times.first, times.last, times.measured) == (21, 40, 20)
    assert times.missing == ""
    spent = [each.milliseconds for each in times.found]
    assert spent == sorted(spent, reverse=True) and min(spent) >= 0
    assert sum(spent) < 1000 * run.summary.seconds / run.summary.steps * 5
    by_kind = {(each.kind, each.phase): each for each in times.found}
    lookups = [each for each in times.found if each.kind == "table lookup"]
    assert {each.calls for each in lookups} == {1.0} and len(lookups) == 2
    # Of both tables, and of all dense parameters.
    assert by_kind["optimizer step", "update"].calls == 3.0
    # MindSpore gives the operators of several layers, forward and backward, one place.
    assert sum(each.calls for each in times.found if each.kind == "dense layers") >= 2
    assert by_kind["loss", "forward"].calls == 2.0


@pytest.mark.skipif(not hasattr(_native.Table, "set_cache"), reason="native build without tiers")
def test_tiers_have_their_pictures(graph_mode, data, unique, tmp_path):
    cache = {"host_rows": 500, "ssd": {"path": str(tmp_path / "ssd"), "direct": False}}
    (tmp_path / "ssd").mkdir()
    config, run = run_of(data, unique(), {"cache": cache})
    for point in run.recorder.points:
        assert all(held <= 500 for held in point.host_rows.values())
        for name, rate in point.hit_rate.items():
            assert 0 <= rate and (rate <= 1 or not name.endswith("host"))
    last = run.recorder.points[-1]
    assert set(last.rows.values()) == {len(np.unique(planted(ROWS, 0)["ids"]))}
    tiers = {name.rpartition(", ")[2] for point in run.recorder.points for name in point.hit_rate}
    assert tiers == {"host", "ssd"}
    assert any(rate > 0 for name, rate in last.hit_rate.items() if name.endswith("ssd"))
    found = figures(MODEL, config, data, run)
    page = tmp_path / "page.html"
    write_report(page, "t", found, run.recorder.points, {}, run.operators)
    text = page.read_text()
    for title in ("Rows of tables in host memory", "Keys found in a tier, by keys looked up",
                  "Memory of tables, MB"):  # fmt: skip
        assert f"<!-- {title} -->" in text
    assert "Means of 20 steps from step 21 on" in text


def test_a_run_goes_on_where_there_is_no_profiler(graph_mode, data, unique, tmp_path, monkeypatch):
    def refuses(**_):
        raise RuntimeError("<busy>")

    monkeypatch.setattr(operators_module, "profile", refuses)
    config, run = run_of(data, unique(), {}, evaluations=1)
    assert run.evaluation is not None and run.operators.found == []
    page = tmp_path / "page.html"
    found = figures(MODEL, config, data, run)
    write_report(page, "t", found, run.recorder.points, {}, run.operators)
    assert (
        "Not measured: MindSpore&#x27;s profiler does not start: &lt;busy&gt;." in page.read_text()
    )


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 59, 1000])
@pytest.mark.parametrize("evaluations", [1, 2, 7, 5000])
def test_the_window_is_inside_the_run_and_between_evaluations(steps, evaluations):
    times = OperatorTimes(steps, evaluations)
    assert 1 <= times.first <= times.last <= steps
    assert times.first > 1 or steps == 1
    every = max(1, steps // evaluations)
    inside = range(times.first, times.last)  # an evaluation comes after the last one's end
    assert not [step for step in inside if step % every == 0]


def test_a_run_that_ends_early_still_has_figures(monkeypatch):
    class Profiler:
        def __init__(self, **_):
            self.start = self.stop = lambda: None

    monkeypatch.setattr(operators_module, "profile", Profiler)
    times = OperatorTimes(100)
    context = SimpleNamespace(cur_step_num=times.first)
    run = SimpleNamespace(original_args=lambda: context)
    times.on_train_step_begin(run)
    times.on_train_step_end(run)
    times.on_train_end(run)
    assert times.measured == 1 and "no operators" in times.missing
