# SPDX-License-Identifier: Apache-2.0
"""Choice of tests by `bash build.sh quick`, and their runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import quick

ROOT = Path(__file__).parents[2]
TOOL = str(ROOT / "tools" / "quick.py")


def nearest(*files: str) -> list[str]:
    """Return the nearest tests of changed files."""
    return [str(each) for each in quick.nearest_tests([Path(file) for file in files])]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import a.b as c, d", [("a.b", ""), ("d", "")]),
        ("def f():\n    from a import b as c, d  # why\n", [("a", "b"), ("a", "d")]),
        ("from a.b import (\n    c,  # from x import y\n    d,\n)\n", [("a.b", "c"), ("a.b", "d")]),
        ("    >>> from a import b\n", []),
    ],
)
def test_names_imported(text: str, names: list[tuple[str, str]]) -> None:
    assert list(quick.names_imported(text)) == names


def test_tests_that_import_a_module_are_first() -> None:
    files = nearest("mindspore_rec/common/columns/finite.py")
    assert files[0] == "tests/train/test_finite_columns.py"
    assert "tests/train/test_train_finite.py" in files[:3]  # by `mindspore_rec`, the face


def test_a_changed_test_is_first() -> None:
    assert nearest("tests/plan/test_plan_log.py")[:1] == ["tests/plan/test_plan_log.py"]


def test_what_is_below_reaches_more_than_what_is_above() -> None:
    below, above = (
        nearest("mindspore_rec/common/checks.py"),
        nearest("mindspore_rec/serve/command.py"),
    )
    assert len(below) > 3 * len(above) > 0


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("docs/streams.md", "tests/docs"),
        ("mindspore_rec/csrc/dense/linear.cc", "tests/nn"),
        ("tests/csrc/tier/env_test.cc", "tests/cache"),
    ],
)
def test_files_that_nothing_imports_have_a_folder_of_tests(file: str, folder: str) -> None:
    files = nearest(file)
    assert files
    assert all(each.startswith(folder + "/") for each in files)


def test_filter_of_cpp_tests() -> None:
    suites = quick.cpp_filter([Path("mindspore_rec/csrc/tier/env.cc")])
    assert re.search(r"(^|:)Env\.\*(:|$)", suites)
    assert "DenseProgram" not in suites
    assert quick.cpp_filter([Path("docs/streams.md"), Path("mindspore_rec/common/sync.py")]) == ""


@pytest.mark.parametrize(
    ("file", "suites", "not_suites"),
    [
        # No test is in the file's own folder.
        ("table/core/candidates.cc", ["Table", "TableLife"], ["SsdTier", "KernelLoops"]),
        # Tests include these headers only through other headers.
        ("table/core/row_rules.h", ["Table", "TableLife", "LivesOfWorkers"], ["KernelLoops"]),
        ("policy/admission.h", ["Sketch", "Table", "TableLife"], ["KernelLoops"]),
        ("rows/kernels.inl", ["Kernels", "Initializer"], ["Table"]),
    ],
)
def test_filter_of_cpp_tests_reaches_far_enough(
    file: str, suites: list[str], not_suites: list[str]
) -> None:
    names = {part.partition(".")[0] for part in quick.cpp_filter([quick.CSRC / file]).split(":")}
    assert set(suites) <= names
    assert not set(not_suites) & names


def test_cpp_tests_of_the_folder_and_of_a_changed_model_are_first() -> None:
    model = [quick.CSRC / "policy/admission.h", quick.CPP_TESTS / "support/table_model.h"]
    near = quick.near_cpp_tests(model)
    first = {
        quick.CPP_TESTS / "policy/sketch_test.cc",
        quick.CPP_TESTS / "table/table_model_test.cc",
    }
    assert set(near[:2]) == first
    changed = quick.CPP_TESTS / "workers/reduce_test.cc"
    assert quick.near_cpp_tests([*model, changed])[0] == changed


@pytest.mark.parametrize(("seconds", "number"), [(60, 5), (0, 2)])
def test_cpp_tests_are_compiled_until_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, number: int
) -> None:
    (tmp_path / "ninja").write_text("#!/bin/sh\ncase $* in *wrong*) exit 3;; esac\n")
    (tmp_path / "ninja").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    near = [quick.CPP_TESTS / f"table/{name}_test.cc" for name in "abcde"]
    assert quick.compile_cpp(near, tmp_path, seconds, jobs=1) == near[:number]
    with pytest.raises(SystemExit, match="3"):
        quick.compile_cpp([quick.CPP_TESTS / "wrong_test.cc"], tmp_path, seconds, jobs=1)


def test_bindings_have_no_cpp_tests_but_the_python_tests_of_their_class() -> None:
    table, workers = "bindings/table_arguments.cc", "bindings/workers.cc"
    assert quick.cpp_filter([quick.CSRC / table]) == ""
    assert "tests/parameter/test_parameter_policies.py" in nearest(str(quick.CSRC / table))[:6]
    assert "test_parallel_alone" in nearest(str(quick.CSRC / workers))[0]


@pytest.mark.parametrize("file", ["kernels.inl", "rule.h", "rule.cc"])
def test_formulas_are_tested_by_optimizers_first(file: str) -> None:
    files = nearest(str(quick.CSRC / "rows" / file))
    assert files[0].startswith("tests/optim/")
    assert any(each.startswith("tests/parameter/") for each in files)


def test_changed_and_whole_tree_tests_always_run() -> None:
    slow = "tests/simulation/test_simulation.py"
    whole, others = quick.tests_to_run([Path(slow), Path("mindspore_rec/common/sync.py")])
    assert whole == [*quick.ALWAYS, slow]
    assert others and not {*others} & {*whole}
    assert all((ROOT / file).is_file() for file in quick.ALWAYS)


def test_slow_tests_run_only_in_whole_files(tmp_path: Path) -> None:
    files = [tmp_path / f"test_{name}.py" for name in "ab"]
    for file in files:
        file.write_text("import pytest\n\n@pytest.mark.slow\ndef test_it():\n    pass\n")
    command = [sys.executable, TOOL, "run", f"--whole={files[0]}", *map(str, files)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ran_by(done.stdout) == ["test_a.py"]


def test_lint_names_the_command_that_mends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("import os\nx = {  'a':1}\n")
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    assert quick.run_lint([Path("a.py")]) == 1
    output = capfd.readouterr().out
    assert "ruff check --fix a.py" in output and "ruff format a.py" in output


def test_an_unknown_base_is_an_error() -> None:
    with pytest.raises(SystemExit, match="--base must be a commit"):
        quick.changed_files("no-such-branch")


@pytest.mark.parametrize(
    ("seconds", "body", "code", "ran"),
    [
        (60, "pass", 0, "ab"),
        (60, "assert False", 1, "ab"),
        (0, "assert False", 0, ""),
        (1, "time.sleep(1)", 0, ""),
    ],
)
def test_runs_until_the_time_is_over(
    tmp_path: Path, seconds: int, body: str, code: int, ran: str
) -> None:
    files = [tmp_path / f"test_{name}.py" for name in "ab"]
    for file in files:
        tests = [f"def test_{number}():\n    {body}\n" for number in range(2)]
        file.write_text("\n".join(["import time\n", *tests]))
    command = [sys.executable, TOOL, "run", f"--seconds={seconds}", *map(str, files)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert ran_by(done.stdout) == [f"test_{name}.py" for name in ran]


def ran_by(output: str) -> list[str]:
    return output.rpartition("quick: ran")[2].split()


def test_changed_tests_that_did_not_end_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = ["tests/test_a.py", "tests/test_b.py"]
    for name in changed:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("def test_it():\n    pass\n")
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    monkeypatch.setattr(quick, "ALWAYS", ())
    for seconds, ran in ((60, 2), (0, 0)):
        assert quick.run_pytest([Path(name) for name in changed], seconds, jobs=2) == 0
        output = capsys.readouterr().out
        assert f"quick: {ran} of 2 test files near the changes have run" in output
        assert (f"-m pytest -q {' '.join(changed)}" in output) == (ran == 0)
