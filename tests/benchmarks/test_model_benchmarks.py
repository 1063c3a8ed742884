# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the reader and of the models' steps run, and say how fast."""

from __future__ import annotations

import json

import pytest

from mindspore_rec import tables_of
from tests.support.nightly import nightly
from tests.support.processes import ROOT, run_program, run_python


def test_data_pipeline(tmp_path):
    out = tmp_path / "pipeline.json"
    script = ROOT / "benchmarks" / "data_pipeline.py"
    done = run_program(script, "--rows", "50000", "--rounds", "1", "--json", out)
    assert done.returncode in (0, 1), done.stderr
    readers = json.loads(out.read_text())["readers"]
    assert len(readers) == 6
    for each in readers.values():
        assert 0 < each["least"] <= each["rows_per_second"] <= each["most"]
    # it says so where a reader is slower than what is promised
    assert (done.returncode == 0) == all(
        each["rows_per_second"] >= 500_000 for each in readers.values()
    )


def test_model_step(tmp_path):
    names = ["dlrm", *nightly("mmoe")]
    out = tmp_path / "steps.json"
    printed = run_python(
        ROOT / "benchmarks" / "model_step.py", "--rows", "2600", "--batch", "64", "--rounds", "2",
        "--models", *names, "--precision", "float32,float16", "--json", out,
    )  # fmt: skip
    models = json.loads(out.read_text())["models"]
    assert list(models) == names
    for name, batches in models.items():
        found = batches["64"]
        assert set(found) == {"float32", "float16"}
        for each in found.values():
            assert each["ours_samples_per_s"] > 0 and each["vanilla_samples_per_s"] > 0
        parts, whole = found["float32"]["parts_ms"], found["float32"]["runs_ms"]["ours"]
        assert sum(parts.values()) == pytest.approx(whole, abs=0.01)
        assert found["float32"]["by_bare"] > 0 and "by_bare" not in found["float16"]
        assert f"| {name} | 64 | float16 |" in printed
    products = [
        (p["layer"], p["product"]) for p in models["dlrm"]["64"]["float32"]["bare_products"]
    ]
    assert ([13, 400], "forward") in products and ([13, 400], "input gradient") not in products


def test_vanilla_has_no_operator_of_ours(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import model_step_nets

    for name in model_step_nets.MODELS:
        net = model_step_nets.network(name, "test", "float32")
        layers, fixed = model_step_nets.layers_of_model(name, net)
        assert all(i > 0 and o > 0 for i, o in layers) and set(fixed) <= set(range(len(layers)))
        model_step_nets.to_vanilla(net, 100)
        assert not tables_of(net)
        assert not any(getattr(cell, "is_fused", False) for _, cell in net.cells_and_names())
