# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest

from mindspore_rec import optim
from mindspore_rec.plan import OPTIMIZERS, Curve, row_bytes
from mindspore_rec.plan.__main__ import main
from mindspore_rec.plan.report import text_curve
from tests.support.processes import run_python

RNG = np.random.default_rng(5)
IDS = RNG.zipf(1.3, (600, 2)) % 200


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.tsv"
    lines = [f"{a}\t{b}\t{60 * i}\n" for i, (a, b) in enumerate(IDS)]
    path.write_text("".join(lines))
    return str(path)


def test_the_command_prints_every_choice_and_the_curve(log, tmp_path):
    out = tmp_path / "plan.json"
    command = ["-m", "mindspore_rec.plan", log, "--keys", "0-1", "--time", "2"]
    command += ["--batch-size", "50", "--admission", "1,3", "--max-idle-steps", "4"]
    command += ["--max-idle-seconds", "3600", "--capacity", "20,0.5,25%", "--order", "lru,lfu"]
    command += ["--dim", "8", "--optimizer", "FTRL", "--json", str(out)]
    printed = run_python(*command)
    figures = json.loads(out.read_text())
    distinct = len(np.unique(IDS))
    assert figures["keys"] == distinct and figures["lookups"] == 1200
    assert figures["row_bytes"] == 28 + 4 * 24
    assert figures["settings"]["keys"] == [0, 1]
    assert len(figures["outcomes"]) == 3 * 2 + 2 * 3
    assert {o["capacity"] for o in figures["outcomes"]} == {
        None,
        20,
        round(distinct / 2),
        round(distinct / 4),
    }
    text = printed.splitlines()
    assert text[0] == (
        f"600 samples, 12 steps, 1,200 lookups, {distinct} distinct keys, 124 bytes a row "
        "and 8 of its digest, 16 where rows leave with age"
    )
    for outcome in figures["outcomes"]:
        row = 124 + (8 if outcome["idle"] is None else 16)
        expected = outcome["final_rows"] * row + outcome["final_counters"] * 28
        assert outcome["final_bytes"] == expected
    head = next(i for i, line in enumerate(text) if line.split()[:1] == ["admission"])
    for line, outcome in zip(text[head + 1 :], figures["outcomes"], strict=False):
        assert f"{100 * outcome['hit_rate']:.2f} %" in line
        assert f"{outcome['peak_rows']:,}" in line
    assert "o admission, no eviction" in text
    assert any("lru, every capacity" in line for line in text)


def test_a_reader_that_has_seen_enough_is_no_error(log):
    command = [sys.executable, "-m", "mindspore_rec.plan", log, "--keys", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(timeout=120) == 0


@pytest.mark.parametrize("name", ["plan.png", "plan.svg"])
def test_the_curve_as_a_picture(log, tmp_path, name):
    path = tmp_path / name
    assert main([log, "--keys", "0", "--capacity", "10", "--plot", str(path)]) == 0
    if name.endswith(".png"):
        assert path.read_bytes().startswith(b"\x89PNG")
        return
    texts = "".join(xml.etree.ElementTree.parse(path).getroot().itertext())
    drawn = path.read_text()
    assert "<path" in drawn and "hit rate" in texts + drawn


def test_without_matplotlib_there_is_the_text_and_one_clear_sentence(
    log, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([log, "--keys", "0"]) == 0
    assert "hit rate over peak bytes" in capsys.readouterr().out
    assert main([log, "--keys", "0", "--plot", str(tmp_path / "plan.png")]) == 1
    said = capsys.readouterr().err
    assert "pip install 'matplotlib>=3.8'; the curve as text needs nothing" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keys", "9"], "there is no column 9; there are 3, from 0"),
        (["--keys", "user"], "there is no column 'user'"),
        (["--keys", "0", "--admission", "0"], "admission must be in [1, 1073741823], got 0"),
        (["--keys", "0", "--max-idle-seconds", "9"], "--max-idle-seconds needs --time"),
        (["--keys", "0", "--order", "lfu"], "--order needs --capacity"),
        (["--keys", "0", "--capacity-admission", "2"], "--capacity-admission needs --capacity"),
        (["--keys", "0", "--capacity", "9", "--order", "mru"], "order must be one of 'lru', 'lfu'"),
        (["--keys", "0", "--capacity", "150%"], "a share in (0, 1], got 1.5"),
        (["--keys", "0", "--dim", "0"], "dim must be in [1, 8192], got 0"),
        (["--keys", "0", "--batch-size", "0"], "batch_size must be in"),
        (["--keys", "0", "--plot", "plan.pdf"], "plot must end in .png or .svg, got plan.pdf"),
        (["--keys", "0", "--plot", "/dev/null/no/plan.png"], "Not a directory: '/dev/null/no'"),
        (["--keys", "0", "--json", "/dev/null/no/plan.json"], "Not a directory: '/dev/null/no'"),
    ],
)
def test_bad_options_are_one_line(log, capsys, arguments, message):
    assert main([log, *arguments]) == 1
    written = capsys.readouterr()
    assert message in written.err and written.out == ""
    assert written.err.startswith("error: ") and "Traceback" not in written.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keys", "0", "--admission", "x"], "--admission: must be whole numbers, got 'x'"),
        (["--keys", "0", "--capacity", "many"], "--capacity: must be rows (50000) or shares"),
        (["--keys", ",a"], "--keys: must be names or numbers, got ',a'"),
        ([], "--keys"),
    ],
)
def test_what_cannot_be_parsed_is_said(log, capsys, arguments, message):
    with pytest.raises(SystemExit):
        main([log, *arguments])
    assert message in capsys.readouterr().err


def test_every_optimizer_of_tables_has_its_size():
    named = {name.removesuffix("-centered") for name in OPTIMIZERS}
    others = {"CombinedOptimizer", "check_covered"}
    assert named == set(vars(optim)["__all__"]) - others


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_sizes_are_those_of_the_native_rules(name, unique):
    from mindspore_rec import MapParameter

    table = MapParameter(name=unique(), value_shape=6)
    constants: dict[str, dict] = {
        "Momentum": {"learning_rate": 0.1, "momentum": 0.9},
        "RMSProp-centered": {"centered": True},
    }
    kind = getattr(optim, name.removesuffix("-centered"))
    kind([table.anchor], **constants.get(name, {}))
    width = int(table.stats()["state_width"])
    assert row_bytes(6, name) == 20 + 8 + 4 * (6 + width)


def test_a_flat_curve_is_drawn():
    drawn = text_curve([Curve("one", [5], [500], [0.25])], width=10, height=2)
    assert drawn.splitlines()[1] == " 25.0 % |o"


@pytest.mark.parametrize("rows", (1, 500, 2_000, 33_000, 300_000))
def test_a_table_holds_up_to_twice_the_planned_bytes_then_128_mib_more(rows, unique):
    from mindspore_rec import LazyAdam, MapParameter

    table = MapParameter(name=unique(), value_shape=16)
    LazyAdam([table.anchor])
    table.put(np.arange(rows), np.zeros((rows, 16), np.float32))
    stats = table.stats()
    held = int(stats["row_bytes"]) + int(stats["index_bytes"])
    planned = rows * row_bytes(16, "LazyAdam")
    smallest = 16 * 32 * row_bytes(16, "LazyAdam")  # a slab in each shard
    assert planned <= held <= min(2.1 * planned, planned + (128 << 20)) + smallest
