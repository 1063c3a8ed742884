# SPDX-License-Identifier: Apache-2.0
"""The benchmarks run from the command line and write what they measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.nightly import NIGHTLY
from tests.support.processes import ROOT, run_python


def run(script: str, *arguments: str) -> str:
    return run_python(ROOT / "benchmarks" / script, *arguments)


SCRIPTS = sorted(
    p.name
    for p in (ROOT / "benchmarks").glob("*.py")
    if "__main__" in p.read_text(encoding="utf-8")
)

# Runs scripts with --help, each as Python runs a script, and prints what each wrote and how it
# ended. All in one process: what takes time is to import MindSpore.
HELP = """
import contextlib, io, json, runpy, sys, traceback
folder, *scripts = sys.argv[1:]
found = {}
for script in scripts:
    sys.argv[:] = [f"{folder}/{script}", "--help"]
    sys.path[0] = folder
    written, end = io.StringIO(), "it went on after --help"
    with contextlib.redirect_stdout(written):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as stop:
            end = stop.code
        except BaseException:
            end = traceback.format_exc()
    found[script] = [end, written.getvalue()]
print("HELP", json.dumps(found))
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, tuple[object, str]]:
    printed = run_python("-c", HELP, ROOT / "benchmarks", *SCRIPTS, seconds=600)
    return json.loads(printed.rpartition("HELP ")[2])


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script, helps):
    end, written = helps[script]
    assert end in (None, 0), end
    assert re.match(rf"usage: (python -m benchmarks\.)?{Path(script).stem}\b", written), written
    assert "--json" in written


@pytest.mark.skipif(not NIGHTLY, reason="compiles graphs for seconds, and asserts little")
def test_sequence_step(tmp_path):
    out = tmp_path / "step.json"
    options = ("--lengths", "5", "--batch", "16", "--rounds", "1", "--long", "50")
    run("sequence_step.py", *options, "--nets", "din", "--json", str(out))
    figures = json.loads(out.read_text())
    assert set(figures["steps"]) == {"din, 5, drawn", "din, 5, fixed"}
    assert figures["microseconds_per_value"]["long"] > 0


def test_embedding_step(tmp_path):
    out = tmp_path / "figures" / "step.json"
    run(
        "embedding_step.py", "--batch", "64", "--fields", "3", "--rows", "3000",
        "--rounds", "3", "--json", str(out),
    )  # fmt: skip
    figures = json.loads(out.read_text())
    assert figures["lookups"] == 192
    assert 0 < figures["distinct"] <= 192
    # The table was trained: all three operators ran.
    assert figures["inside_lookup_ms"] > 0
    assert figures["inside_accumulate_ms"] > 0
    assert figures["inside_step_ms"] > 0
    assert {"vanilla_ms", "floor_ms", "ours_new_keys_ms"} <= figures.keys()
    assert figures["machine"]["cpus"] >= 1


def test_wide_deep_step(tmp_path):
    out = tmp_path / "wide_deep.json"
    run(
        "wide_deep_step.py", "--batch", "32", "--rows", "4000", "--rounds", "2",
        "--shape", "criteo_26", "--json", str(out),
    )  # fmt: skip
    figures = json.loads(out.read_text())["shapes"]["criteo_26"]["32"]["float32"]
    assert figures["ours_samples_per_s"] > 0
    assert figures["vanilla_samples_per_s"] > 0


def test_grouped_tables(tmp_path):
    out = tmp_path / "grouped.json"
    run(
        "grouped_tables.py", "--batch", "64", "--tables", "3", "--rows", "100", "--steps", "3",
        "--json", str(out),
    )  # fmt: skip
    assert set(json.loads(out.read_text())["milliseconds"]) == {"separate", "grouped", "one_table"}


def test_model_options(tmp_path):
    out = tmp_path / "options.json"
    run(
        "model_options.py", "--batch", "32", "--ids", "2", "--numbers", "2", "--rows", "50",
        "--members", "2", "--steps", "2", "--json", str(out),
    )  # fmt: skip
    figures = json.loads(out.read_text())["milliseconds"]
    assert list(figures) == ["concat", "embed", "piecewise", "periodic", "2 members"]


def test_sketch_accuracy(tmp_path):
    out = tmp_path / "sketch.json"
    run("sketch_accuracy.py", "--keys", "20000", "--thresholds", "2", "--json", str(out))
    early = {
        each["bytes"]: each["admitted_early"] for each in json.loads(out.read_text())["shares"]
    }
    assert early[1] > early[2] > early[4] > early[8]
    assert early[4] < 0.02, "what SketchAdmission promises, with room for chance"
