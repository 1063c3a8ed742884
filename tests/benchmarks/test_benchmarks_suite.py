# SPDX-License-Identifier: Apache-2.0
"""The list of benchmarks, its stored results, their table and pictures are of one piece."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.processes import ROOT

BENCHMARKS = ROOT / "benchmarks"
# They need PyTorch or a GPU, which are no parts of the environment for development.
NOT_STORED = {"accuracy_twin", "gpu_step", "gpu_torch"}
ORIGIN = ("script", "command", "settings", "wall_seconds", "date", "commit", "machine")


@pytest.fixture
def run_all(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "run_all.py")])
    import run_all  # type: ignore[import-not-found]

    return run_all


def scripts():
    found = {p.stem for p in BENCHMARKS.glob("*.py") if "__main__" in p.read_text(encoding="utf-8")}
    return found - {"run_all", "plots"}


def test_the_list_has_each_script_and_nothing_else(run_all):
    of_benchmarks = {name for name, each in run_all.SUITE.items() if not each.path}
    assert of_benchmarks == scripts()
    assert list(run_all.SUITE) == sorted(run_all.SUITE)
    assert all((ROOT / run_all.path_of(name)).exists() for name in run_all.SUITE)


def test_the_readme_has_a_line_for_each_script_and_its_result(run_all):
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    between = text.split(run_all.BEGIN)[1].split(run_all.END)[0]
    assert between.strip().splitlines() == run_all.table(run_all.RESULTS)
    listed = re.findall(r"^\| \[`(?:.*/)?([^`/]+)\.py`\]", between, re.MULTILINE)
    elsewhere = {Path(each.path).stem for each in run_all.SUITE.values() if each.path}
    assert set(listed) - elsewhere == scripts()


def test_what_is_stored_names_its_script_and_where_it_comes_from(run_all):
    stored = {path.stem: path for path in run_all.RESULTS.glob("*")}
    assert set(stored) == set(run_all.SUITE) - NOT_STORED
    for name, path in stored.items():
        result = json.loads(path.read_text(encoding="utf-8"))
        assert all(result[key] for key in ORIGIN), name
        assert result["script"] == run_all.path_of(name)
        assert result["command"].startswith(f"PYTHONPATH=. python {result['script']}")
        assert result["settings"] in ("minute", "tiny")
        assert result["machine"]["cpus"] >= 1
        assert str(ROOT) not in path.read_text(encoding="utf-8")


def test_a_result_is_stored_with_its_origin(run_all, tmp_path):
    arguments = ["--only", "sketch_accuracy", "--settings", "tiny", "--json", str(tmp_path)]
    assert run_all.main(arguments) == 0
    result = json.loads((tmp_path / "sketch_accuracy.json").read_text())
    assert tuple(result)[: len(ORIGIN)] == ORIGIN
    assert result["script"] == "benchmarks/sketch_accuracy.py"
    assert result["command"] == (
        "PYTHONPATH=. python benchmarks/sketch_accuracy.py --keys 5000 --thresholds 2"
    )
    assert result["settings"] == "tiny" and result["shares"]
    (line,) = [each for each in run_all.table(tmp_path) if "sketch_accuracy.py" in each]
    assert "tiny settings: no figures" in line


def test_a_benchmark_that_fails_keeps_the_result_of_before(run_all, tmp_path, capfd):
    kept = tmp_path / "sketch_accuracy.json"
    kept.write_text("before")
    arguments = ["--only", "sketch_accuracy", "--settings", "tiny", "--json", str(tmp_path)]
    assert run_all.main([*arguments, "--timeout", "0.01"]) == 1
    assert "FAILED: sketch_accuracy: took more than 0 s" in capfd.readouterr().err
    assert kept.read_text() == "before"


def test_what_needs_a_part_that_is_missing_is_left_out(run_all, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("MINDSPORE_REC_MOVIELENS_DIR", raising=False)
    names = ["redis_tier", "online_movielens"]
    assert run_all.main(["--only", *names, "--json", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "== redis_tier is left out: redis-server is not in the path" in out
    assert "== online_movielens is left out: java is not in the path" in out
    assert "MINDSPORE_REC_MOVIELENS_DIR does not name a directory" in out
    assert not list(tmp_path.iterdir())


def test_pictures_are_drawn_from_stored_results(run_all, tmp_path, capsys):
    import plots  # type: ignore[import-not-found]

    assert {p.name for p in (ROOT / "docs" / "images").iterdir()} == set(plots.PICTURES)
    assert {stem for stem, _ in plots.PICTURES.values()} <= set(run_all.SUITE)
    points = [{"sample": 10 * i, "rows": 5 + i, "auc": 0.6} for i in range(3)]
    results = {
        "example_dynamic_features": {
            "alive": 4,
            "best_auc": 0.8,
            "unbounded": points,
            "bounded": points,
        },
        "online_movielens": {
            "window": 20,
            "every": 4,
            "curves": {"static": [0.5, 0.6], "100": [0.6, 0.7]},
        },
    }
    command = ["--json", str(tmp_path), "--out", str(tmp_path / "pictures")]
    for stem, result in results.items():
        (tmp_path / f"{stem}.json").write_text(json.dumps({**result, "settings": "minute"}))
    assert plots.main(command) == 0
    for name in plots.PICTURES:
        assert (tmp_path / "pictures" / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        (tmp_path / "pictures" / name).unlink()
    for stem, result in results.items():
        (tmp_path / f"{stem}.json").write_text(json.dumps({**result, "settings": "tiny"}))
    assert plots.main(command) == 1
    assert capsys.readouterr().err.count("is of tiny settings") == 2
    assert not list((tmp_path / "pictures").iterdir())


def test_the_longest_stored_run_fits_the_time_limit(run_all, monkeypatch, tmp_path):
    limits = []
    monkeypatch.setattr(run_all, "run", lambda name, options, disk: limits.append(options.timeout))
    assert run_all.main(["--only", "sketch_accuracy", "--json", str(tmp_path)]) == 0
    stored = [json.loads(each.read_text()) for each in (BENCHMARKS / "results").glob("*.json")]
    assert limits[0] > 1.5 * max(each["wall_seconds"] for each in stored)


def test_the_memory_of_a_server_is_in_megabytes(run_all):
    import serving_load
    import shared_rows  # type: ignore[import-not-found]

    server = SimpleNamespace(pid=os.getpid())
    kilobytes = sum(shared_rows.share(pid) for pid in serving_load.processes_of(server))
    measured = serving_load.memory_of(server)["memory_mb"]
    assert measured == pytest.approx(kilobytes / 1000, rel=0.01)


def test_the_cpu_time_of_a_reader_includes_its_processes(run_all):
    import read_parquet  # type: ignore[import-not-found]

    def in_a_process():
        subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
        return 1000

    figures = read_parquet.measure({"pyarrow's scan": in_a_process}, 1000, 1)
    assert figures["pyarrow's scan"]["rows_per_cpu_second"] < 20_000


def test_peers_of_other_benchmarks_train_no_network(run_all):
    import wide_deep_step  # type: ignore[import-not-found]

    assert wide_deep_step.peers_of("mindspore,torch,tfra") == ["mindspore", "torch", "tfra"]
    with pytest.raises(ValueError, match="peers must be of mindspore, torch, tfra, got 'fbgemm'"):
        wide_deep_step.peers_of("fbgemm")
