# SPDX-License-Identifier: Apache-2.0
"""Check the changes since a commit: lint, and the nearest tests, in about a minute.

    python tools/quick.py lint
    python tools/quick.py cpp
    python tools/quick.py pytest --seconds 40

`bash build.sh quick` compiles and runs the three checks. `lint` checks the files that changed since
the common ancestor with `--base`, and the types of all files. `cpp` prints the filter for the C++
tests of folders with changed files, and for C++ tests that include a changed header. `pytest` runs
the tests that reach a changed file by imports, the nearest first, until `--seconds` are over, and
prints the number of test files run; `bash build.sh test` runs all tests.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
CSRC = Path("mindspore_rec/csrc")
CPP_TESTS = Path("tests/csrc")
CPP_ENDINGS = (".cc", ".h", ".inl")
PYTHON = ("mindspore_rec", "models", "benchmarks", "datasets", "examples", "tools", "tests")

# Number of test files that are collected before they run: collecting all files takes half a minute.
AT_A_TIME = 6

# Python tests of compiled code, by folders of csrc; other folders use 'parameter'.
PYTHON_TESTS = {
    "tier": "cache",
    "cache": "cache",
    "optim": "optim",
    "dense": "nn",
    "cuda": "cuda",
    "ops": "nn",
    "serving": "serving/shared",
    "readers": "serving/shared",
    "workers": "parallel",
}
# Tests of Python code, by folders of the package; other folders use the same name in `tests`.
ROOM_TESTS = {
    "common/columns": "feature",
    "common/digests": "parameter",
    "common/launch": "launch",
    "common/metrics": "metrics",
    "common/network": "serving/network",
    "common/parallel": "parallel",
    "common/rows": "parameter",
    "common/run": "checkpoint",
    "common/stream": "stream",
    "common/tiers": "cache",
    "compat": "feature",
    "train/checkpoint": "checkpoint",
    "train/export": "serving/network",
    "train/graph": "nn",
    "train/metrics": "metrics",
    "train/nn": "nn",
    "train/optim": "optim",
    "train/parameter": "parameter",
    "train": "train",
    "serve/network": "serving/network",
    "serve/following": "serving/following",
    "serve/protection": "serving/protection",
    "serve/protocol": "serving/protocol",
    "serve/server": "serving/server",
    "serve/shared": "serving/shared",
    "serve": "serving",
}


# ---------------------------------------------------------------- what was changed


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints; none if git fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files(base: str) -> list[Path]:
    """Return the existing files that differ from the common ancestor of `base` and HEAD."""
    ancestor = git("merge-base", base, "HEAD")
    if not ancestor:
        raise SystemExit(f"quick: --base must be a commit or branch of this clone, got '{base}'")
    names = [
        *git("diff", "--name-only", ancestor[0]),
        *git("ls-files", "--others", "--exclude-standard"),
    ]
    return [Path(name) for name in dict.fromkeys(names) if (ROOT / name).is_file()]


# ---------------------------------------------------------------- Python: who imports whom


def python_files() -> list[Path]:
    """Return all Python files, relative to the root."""
    files = (file for folder in PYTHON for file in (ROOT / folder).rglob("*.py"))
    return sorted(file.relative_to(ROOT) for file in files)


_FROM = re.compile(r"^ *from ([\w.]+) import (\([^)]*\)|[^\n(]*)", re.MULTILINE)
_IMPORT = re.compile(r"^ *import ([\w., ]+)", re.MULTILINE)


def names_imported(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each `from module import name`, and (module, '') of an import.

    Example:
        >>> list(names_imported("import os\\nfrom a.b import (\\n    c as d,  # why\\n    e,\\n)"))
        [('a.b', 'c'), ('a.b', 'e'), ('os', '')]
    """
    for module, names in _FROM.findall(text):
        for name in re.sub("#.*", "", names.strip("()")).split(","):
            if name.strip():
                yield module, name.split()[0]
    for names in _IMPORT.findall(text):
        yield from ((name.split()[0], "") for name in names.split(",") if name.strip())


class Imports:
    """The imports between files; a package's public name leads to the file that defines it.

    Args:
        files: Python files, relative to the root.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = {_module(file): file for file in files}
        self._names = {
            file: list(names_imported((ROOT / file).read_text(encoding="utf-8")))
            for file in self._files.values()
        }
        self._homes = {
            f"{face}.{name}": f"{module}.{name}"
            for face, file in self._files.items()
            if file.name == "__init__.py" or file.parent.name == "mindspore_rec"
            for module, name in self._names[file]
        }

    def of(self, file: Path) -> set[Path]:
        """Return the files that a file imports."""
        homes = {self._home(f"{module}.{name}".rstrip(".")) for module, name in self._names[file]}
        return {each for each in homes if each is not None and each != file}

    def distances(self, changed: Iterable[Path]) -> dict[Path, int]:
        """Return the number of imports from each file to the nearest changed file."""
        users: dict[Path, set[Path]] = defaultdict(set)
        for file in self._names:
            for each in self.of(file):
                users[each].add(file)
        distances = {file: 0 for file in changed if file in self._names}
        nearest = list(distances)
        while nearest:
            file = nearest.pop(0)
            for user in users[file] - distances.keys():
                distances[user] = distances[file] + 1
                nearest.append(user)
        return distances

    def _home(self, name: str) -> Path | None:
        name = self._homes.get(name, name)
        name = self._homes.get(name, name)  # a face that takes it from another face
        while name and name not in self._files:
            name = name.rpartition(".")[0]
        return self._files.get(name)


def _module(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def nearest_tests(changed: Sequence[Path]) -> list[Path]:
    """Return the test files that a change may break, the nearest first.

    If two files are equally near, a file in a folder with a changed file is first. The slowest test
    files are last.
    """
    from tests.support.slow_tests import SLOW

    distances = Imports(python_files()).distances(changed)
    near = {file: distance for file, distance in distances.items() if _is_test(file)}
    folders = {folder for file in changed if (folder := _tests_of(file)) is not None}
    for folder in folders:
        for file in (ROOT / folder).rglob("test_*.py") if (ROOT / folder).is_dir() else ():
            near.setdefault(file.relative_to(ROOT), 2)
    return sorted(
        near,
        key=lambda file: (str(file) in SLOW, near[file], file.parent not in folders, str(file)),
    )


def _is_test(file: Path) -> bool:
    return file.name.startswith("test_") and file.parts[0] == "tests"


def _tests_of(file: Path) -> Path | None:
    """Return the test folder of a file that no import leads to; None if the file has none."""
    if CSRC in file.parents or CPP_TESTS in file.parents:
        inside = file.relative_to(CSRC if CSRC in file.parents else CPP_TESTS)
        names = [part for part in inside.parts if part in PYTHON_TESTS] or [""]
        return Path("tests") / PYTHON_TESTS.get(names[-1], "parameter")
    if file.suffix == ".md":
        return Path("tests/docs")
    if file.name == "conftest.py":
        return file.parent
    if file.parts[0] in ("mindspore_rec", *PYTHON):
        inside = file.relative_to("mindspore_rec") if file.parts[0] == "mindspore_rec" else file
        folders = [str(inside.parent), *map(str, inside.parent.parents)]
        room = next((ROOM_TESTS[each] for each in folders if each in ROOM_TESTS), None)
        return Path("tests") / (room or inside.parent)
    return None


class _Deadline:
    """Plugin of pytest that ends a run between two tests."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.files: set[str] = set()
        self.is_over = self.has_failed = False

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.files.add(report.nodeid.partition("::")[0])
        self.has_failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.monotonic() < self._end:
            return None
        self.is_over = True
        item.session.shouldstop = "the time is over"
        return True  # in place of the test


def run_some(files: Sequence[str], seconds: float) -> int:
    """Run test files in this process until the time is over; print how many were run."""
    plugin = _Deadline(seconds)
    codes = {0}
    for first in range(0, len(files), AT_A_TIME):
        some = files[first : first + AT_A_TIME]
        code = int(pytest.main(["-q", "-m", "not slow", "--no-header", *some], plugins=[plugin]))
        if plugin.is_over:
            break
        codes.add(code)
    print(f"quick: {len(plugin.files)} of {len(files)} files of tests")
    wrong = codes - {0, int(pytest.ExitCode.NO_TESTS_COLLECTED)}
    return int(plugin.has_failed or bool(wrong))


def run_pytest(changed: Sequence[Path], seconds: float, jobs: int) -> int:
    """Run the nearest tests in some processes, and return an exit status."""
    files = [str(file) for file in nearest_tests(changed)]
    if not files:
        print("quick: no test is near what was changed")
        return 0
    print(f"quick: {len(files)} files of tests are near, {files[0]} first")
    command = [sys.executable, __file__, "run", f"--seconds={seconds}"]
    shares = [files[first::jobs] for first in range(min(jobs, len(files)))]
    running = [
        subprocess.Popen([*command, *share], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for share in shares
    ]
    outputs = [each.communicate()[0] for each in running]
    for output in outputs:
        print(output, end="")
    return int(any(each.returncode for each in running))


# ---------------------------------------------------------------- lint, C++


def run_lint(changed: Sequence[Path]) -> int:
    """Lint the changed files, and check all types; return an exit status."""
    tools = Path(sys.executable).parent
    python = [str(file) for file in changed if file.suffix in (".py", ".pyi", ".md")]
    cpp = [str(file) for file in changed if file.suffix in CPP_ENDINGS]
    commands = [[str(tools / "mypy"), "."]]
    if python:
        commands += [
            [str(tools / "ruff"), "check", *(name for name in python if not name.endswith(".md"))],
            [str(tools / "ruff"), "format", "--check", *python],
        ]
    if cpp:
        commands.append([str(tools / "clang-format"), "--dry-run", "-Werror", *cpp])
    return int(any([subprocess.run(each, cwd=ROOT, check=False).returncode for each in commands]))


def cpp_filter(changed: Sequence[Path]) -> str:
    """Return gtest's filter for the tests of the changed files; '' if no C++ file changed."""
    cpp = [file for file in changed if file.suffix in CPP_ENDINGS]
    folders = {
        CPP_TESTS / file.relative_to(CSRC).parent if CSRC in file.parents else file.parent
        for file in cpp
        if CSRC in file.parents or CPP_TESTS in file.parents
    }
    headers = {str(file.relative_to(CSRC)) for file in cpp if CSRC in file.parents}
    suites: set[str] = set()
    for path in sorted((ROOT / CPP_TESTS).rglob("*_test.cc")):
        text = path.read_text(encoding="utf-8")
        includes = set(re.findall(r'#include "([^"]+)"', text))
        if path.relative_to(ROOT).parent in folders or includes & headers:
            suites |= set(re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", text, re.MULTILINE))
    return ":".join(f"{name}.*:*/{name}.*:{name}/*" for name in sorted(suites)) if folders else ""


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["lint", "cpp", "pytest", "run"])
    parser.add_argument("--base", help="commit or branch; default: origin/main, or else main")
    parser.add_argument("--seconds", type=float, default=40, help="for tests; default: 40")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("files", nargs="*", help="of `run`, which `pytest` starts")
    options = parser.parse_intermixed_args()
    if options.command == "run":
        return run_some(options.files, options.seconds)
    known = git("rev-parse", "--verify", "--quiet", "origin/main")
    changed = changed_files(options.base or ("origin/main" if known else "main"))
    if options.command == "lint":
        return run_lint(changed)
    if options.command == "cpp":
        print(cpp_filter(changed))
        return 0
    return run_pytest(changed, options.seconds, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
