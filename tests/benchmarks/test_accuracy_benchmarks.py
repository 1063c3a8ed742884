# SPDX-License-Identifier: Apache-2.0
"""The accuracy benchmarks: baselines that find what is planted, and twins that learn alike."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import accuracy_table, accuracy_twin
from mindspore_rec import tables_of
from mindspore_rec.common.extras import pip_install
from models.common.baselines import BASELINES
from models.common.data import Data
from models.common.model import build, read_config
from tests.support.missing import need_package


def planted(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A label that one id of few values, one of many and a number decide, each by itself."""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.integers(0, 10, rows), rng.integers(1000, 1400, rows)], 1)
    numbers = rng.standard_normal((rows, 1)).astype(np.float32)
    score = (ids[:, 0] % 3 - 1.0) + (ids[:, 1] % 2 - 0.5) * 2 + numbers[:, 0]
    return ids, numbers, (rng.random(rows) < 1 / (1 + np.exp(-score))).astype(np.float32)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:X does not have valid")
@pytest.mark.parametrize("name", BASELINES)
def test_baselines_come_near_the_truth(name):
    if name == "LightGBM":
        need_package("lightgbm", f"an optional extra: {pip_install('lightgbm')}")
    from sklearn.metrics import roc_auc_score

    train, test = planted(12_000, 0), planted(6000, 1)
    ids, numbers, label = test
    truth = (ids[:, 0] % 3 - 1.0) + (ids[:, 1] % 2 - 0.5) * 2 + numbers[:, 0]
    found = BASELINES[name](train, test)
    best = roc_auc_score(label, truth)
    assert best - 0.03 < found["auc"] <= best + 0.002
    # an id of training that the test rows do not have, and the other way, are no error
    strange = (ids + 10_000, numbers, label)
    assert BASELINES[name](train, strange)["auc"] < found["auc"]


def test_twins_learn_alike(tmp_path):
    need_package("torch", f"an optional extra: {pip_install('torch')}")
    out = tmp_path / "twin.json"
    command = ["--rows", "30000", "--test-rows", "8000", "--evaluations", "2", "--json", str(out)]
    assert accuracy_twin.main([*command, "--models", "dcn", "deepfm"]) == 0
    figures = json.loads(out.read_text())
    for each in figures["models"].values():
        first, last = each["curves"]
        assert last["steps"] == 15
        assert last["ours_log_loss"] < first["ours_log_loss"]
        assert abs(last["ours_auc"] - last["torch_auc"]) < 1e-3


@pytest.mark.parametrize("name", accuracy_twin.MODELS)
def test_a_twin_begins_with_the_same_logits(graph_mode, unique, name):
    torch = need_package("torch", f"an optional extra: {pip_install('torch')}")
    from benchmarks.torch_twins import Twin

    rng = np.random.default_rng(0)
    keys = np.unique(rng.integers(-(1 << 60), 1 << 60, 200))
    numbered = rng.integers(0, len(keys), (64, 4))
    dense = rng.random((64, 3), np.float32)
    model = accuracy_table.model_of(name)
    data = Data("few", 4, 3, lambda *_: [], 64, [])
    built = build(model, read_config(model, "synthetic.yaml"), data, unique())
    twin = Twin(name, built._network, keys)
    ours = built.predict(keys[numbered], dense).asnumpy()
    with torch.no_grad():
        theirs = twin(torch.from_numpy(numbered + 1), torch.from_numpy(dense)).numpy()
    assert np.ptp(ours) > 1e-3
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    for table in tables_of(built.train_network):
        table.close()


def test_a_table_has_the_share_of_the_way_and_of_the_twins():
    def row(auc, **more):
        return {"title": "x", "mean": {"auc": auc, "log_loss": 0.5}, "deviation": None, **more}

    found = {
        "logistic regression": row(0.70),
        "deepfm": row(0.76, runs=[{"auc": 0.75}], twin={"auc": 0.80}),
    }
    lines = accuracy_table.table(found, bayes=0.90)
    assert lines[0].endswith(
        "| share of the gap to Bayes | AUC of the twin | share by the twin's |"
    )
    assert lines[2] == "| x | 0.70000 | 0.50000 | 0.0% |  |  |"
    assert lines[3] == "| x | 0.76000 | 0.50000 | 30.0% | 0.80000 | 50.0% |"
    assert len({line.count("|") for line in lines}) == 1


def test_known_baselines_are_not_fitted(tmp_path, monkeypatch, capsys):
    def fit(*_):
        raise AssertionError("a baseline is fitted")

    mean = {"auc": 0.75, "log_loss": 0.5}
    known = {"title": "logistic regression", "mean": mean, "deviation": None}
    path = tmp_path / "earlier.json"
    path.write_text(json.dumps({"data": "this", "results": {"logistic regression": known}}))
    data = SimpleNamespace(name="this", bayes_auc=None)
    monkeypatch.setattr(accuracy_table, "open_data", lambda *_: data)
    monkeypatch.setattr(accuracy_table, "of_data", fit)
    arguments = ["--set", "synthetic", "--models", "--known", str(path)]
    assert accuracy_table.main(arguments) == 0
    assert "| logistic regression | 0.75000 | 0.50000 |" in capsys.readouterr().out


def test_baselines_are_taken_from_an_earlier_result(tmp_path):
    path = tmp_path / "earlier.json"
    results = {"logistic regression": {"title": "x"}, "dcn": {"title": "y"}}
    path.write_text(json.dumps({"data": "this", "results": results}))
    assert list(accuracy_table.known(path, "this")) == ["logistic regression"]
    with pytest.raises(ValueError, match="--known is of this, not of that"):
        accuracy_table.known(path, "that")
