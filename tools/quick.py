# SPDX-License-Identifier: Apache-2.0
"""Check the changes since a commit, in about a minute: lint, and tests close to the changes.

    python tools/quick.py lint
    python tools/quick.py cpp build/csrc-native
    python tools/quick.py pytest --seconds 40

`bash build.sh quick` compiles the code and runs three checks. `lint` lints the files that changed
since the common ancestor of HEAD and `--base`, and checks the types of all files. `near` prints the
C++ test files in the folders of changed files, and the C++ test files that include a changed
header, directly or indirectly. The files nearest to a change are first. `cpp` compiles C++ test
files in the order of `near` until `CPP_SECONDS` are over, and prints the compiled files.
`pytest` runs tests until `--seconds` are over: the checks of `ALWAYS`, then changed test files,
then the tests that import a changed file, directly or indirectly, the nearest tests first. The
command `pytest` prints the number of test files that ran to their end, and lists the changed test
files that did not; `bash build.sh test` runs all tests.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
CSRC = Path("mindspore_rec/csrc")
CPP_TESTS = Path("tests/csrc")
CPP_ENDINGS = (".cc", ".h", ".inl")
PYTHON = ("mindspore_rec", "models", "benchmarks", "datasets", "examples", "tools", "tests")

# Begins the last line of the output of `run`: the test files that ran to their end.
_RAN = "quick: ran"
# pytest collects and runs this number of test files at a time, because collecting all files first
# takes half a minute.
AT_A_TIME = 6

# After this number of seconds, `cpp` starts no further compilation. Compilation of a file takes two
# to six seconds.
CPP_SECONDS = 8
# Seconds that Python tests get even if C++ tests have used up the time.
LEAST_SECONDS = 15

# Test files that read the whole source tree. The tests in `ALWAYS` run after every change, before
# all other tests, and take some seconds.
ALWAYS = (
    "tests/tools/test_counts.py",
    "tests/test_import_rule.py",
    "tests/test_native_layers.py",
    "tests/docs/test_docs_architecture.py",
    "tests/docs/test_docs_figures.py",
    "tests/docs/test_docs_links.py",
    "tests/docs/test_docs_maturity.py",
)

# Maps prefixes of paths in csrc to folders of Python tests that run the compiled code; the nearest
# folder is first. The longest prefix that matches a path applies.
PYTHON_TESTS: dict[str, tuple[str, ...]] = {
    "": ("parameter",),
    "bindings/dense": ("nn",),
    "bindings/python_tier": ("cache",),
    "bindings/quantised_rows": ("serving",),
    "bindings/shared_rows": ("serving/shared",),
    "bindings/ssd_store": ("ssd",),
    "bindings/workers": ("parallel",),
    "cuda": ("cuda",),
    "dense": ("nn",),
    "ops": ("nn",),
    "readers": ("serving/shared",),
    "rows/kernels": ("optim", "parameter"),
    "rows/rule": ("optim", "parameter"),
    "table/cache": ("cache",),
    "table/device": ("cache",),
    "tier": ("cache",),
    "workers": ("parallel",),
}
# Maps a folder of the package to the folder with its tests. If a folder is not listed, its tests
# are in the folder of the same name in `tests`.
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
    "train/models": "models",
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
    """Return the output lines of a git command; an empty list if the command fails."""
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


def distances_from(starts: Iterable[Path], users: Mapping[Path, set[Path]]) -> dict[Path, int]:
    """Return the files that use a file of `starts`, with the length of the shortest way to it.

    Args:
        starts: files at the distance 0.
        users: maps a file to the files that use it directly.

    Example:
        >>> a, b, c = Path("a"), Path("b"), Path("c")
        >>> list(distances_from([a], {a: {b}, b: {a, c}, c: set()}).values())
        [0, 1, 2]
    """
    distances = dict.fromkeys(starts, 0)
    nearest = list(distances)
    while nearest:
        file = nearest.pop(0)
        for user in users.get(file, set()) - distances.keys():
            distances[user] = distances[file] + 1
            nearest.append(user)
    return distances


# ---------------------------------------------------------------- Python: who imports whom


def python_files() -> list[Path]:
    """Return all Python files, relative to the root."""
    files = (file for folder in PYTHON for file in (ROOT / folder).rglob("*.py"))
    return sorted(file.relative_to(ROOT) for file in files)


_FROM = re.compile(r"^ *from ([\w.]+) import (\([^)]*\)|[^\n(]*)", re.MULTILINE)
_IMPORT = re.compile(r"^ *import ([\w., ]+)", re.MULTILINE)


def names_imported(text: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for `from module import name`, and (module, '') for `import module`.

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
    """Imports between files; a name imported from a package leads to the file that defines it.

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
        """Return, for each file, the number of imports on the shortest path to a changed file."""
        users: dict[Path, set[Path]] = defaultdict(set)
        for file in self._names:
            for each in self.of(file):
                users[each].add(file)
        return distances_from((file for file in changed if file in self._names), users)

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

    Among equally near files, files in the folder of a changed file are first. The slowest test
    files run last, except changed test files.
    """
    from tests.support.slow_tests import SLOW

    sources = [*changed, *users_of_bindings(changed)]
    distances = Imports(python_files()).distances(sources)
    near = {file: distance for file, distance in distances.items() if _is_test(file)}
    folders = dict.fromkeys(folder for file in changed for folder in _tests_of(file))
    for place, folder in enumerate(folders):
        for file in (ROOT / folder).rglob("test_*.py") if (ROOT / folder).is_dir() else ():
            near.setdefault(file.relative_to(ROOT), 2 + place)
    return sorted(
        near,
        key=lambda file: (
            str(file) in SLOW and file not in changed,
            near[file],
            file.parent not in folders,
            str(file),
        ),
    )


def users_of_bindings(changed: Iterable[Path]) -> list[Path]:
    """Return the Python test files that use a native class whose bindings are in a changed file.

    If a changed file in `bindings` binds no class, the function assumes that the file binds
    `Table`.
    """
    names: set[str] = set()
    for file in changed:
        if CSRC / "bindings" in file.parents:
            text = (ROOT / file).read_text(encoding="utf-8")
            bound = re.findall(r'py::class_<.*\((?:m|\*module), "(\w+)"\)', text)
            names.update(bound or ["Table"])
    if not names:
        return []
    use = re.compile(rf"\b_native(?:\.| import .*\b)(?:{'|'.join(sorted(names))})\b")
    files = (file for file in python_files() if file.parts[0] == "tests")
    return [file for file in files if use.search((ROOT / file).read_text(encoding="utf-8"))]


def _is_test(file: Path) -> bool:
    return file.name.startswith("test_") and file.parts[0] == "tests"


def _tests_of(file: Path) -> tuple[Path, ...]:
    """Return the test folders for a file that no test imports, the nearest first."""
    if CSRC in file.parents or CPP_TESTS in file.parents:
        inside = file.relative_to(CSRC if CSRC in file.parents else CPP_TESTS).as_posix()
        longest = max((each for each in PYTHON_TESTS if inside.startswith(each)), key=len)
        return tuple(Path("tests") / folder for folder in PYTHON_TESTS[longest])
    if file.suffix == ".md":
        return (Path("tests/docs"),)
    if file.name == "conftest.py":
        return (file.parent,)
    if file.parts[0] in ("mindspore_rec", *PYTHON):
        inner = file.relative_to("mindspore_rec") if file.parts[0] == "mindspore_rec" else file
        folders = [str(inner.parent), *map(str, inner.parent.parents)]
        room = next((ROOM_TESTS[each] for each in folders if each in ROOM_TESTS), None)
        return (Path("tests") / (room or inner.parent),)
    return ()


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
        self.files.discard(item.nodeid.partition("::")[0])  # which has begun, but not ended
        item.session.shouldstop = "the time is over"
        return True  # in place of the test


def run_some(files: Sequence[str], seconds: float, whole: Sequence[str] = ()) -> int:
    """Run test files in this process until the time limit; print the files that ran to their end.

    Args:
        files: the test files.
        seconds: the time.
        whole: test files in `files` to run first; their slow tests run too.
    """
    plugin = _Deadline(seconds)
    codes = {0}
    others = [file for file in files if file not in whole]
    batches = [(list(whole), "")] if whole else []
    batches += [(others[i : i + AT_A_TIME], "not slow") for i in range(0, len(others), AT_A_TIME)]
    for some, marks in batches:
        code = int(pytest.main(["-q", "-m", marks, "--no-header", *some], plugins=[plugin]))
        if plugin.is_over:
            break
        codes.add(code)
    print(_RAN, *sorted(plugin.files))
    wrong = codes - {0, int(pytest.ExitCode.NO_TESTS_COLLECTED)}
    return int(plugin.has_failed or bool(wrong))


def tests_to_run(changed: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Return the test files to run first, and the other test files, the nearest first.

    The first test files are the files of `ALWAYS`, then the changed test files; slow changed test
    files are last.
    """
    from tests.support.slow_tests import SLOW

    near = nearest_tests(changed)
    tests = [str(file) for file in changed if _is_test(file) and file.suffix == ".py"]
    first = dict.fromkeys([*ALWAYS, *sorted(tests, key=lambda file: file in SLOW)])
    return [*first], [file for file in map(str, near) if file not in first]


def run_pytest(changed: Sequence[Path], seconds: float, jobs: int) -> int:
    """Run `ALWAYS`, changed tests and the nearest tests in parallel; return an exit status."""
    if not changed:
        print("quick: nothing was changed")
        return 0
    whole, others = tests_to_run(changed)
    command = [sys.executable, __file__, "run", f"--seconds={seconds}"]
    running = []
    for job in range(min(jobs, len(whole) + len(others))):
        mine = whole[job::jobs]
        options = [f"--whole={file}" for file in mine]
        share = [*command, *options, *mine, *others[job::jobs]]
        running.append(subprocess.Popen(share, cwd=ROOT, stdout=subprocess.PIPE, text=True))
    outputs = [each.communicate()[0] for each in running]
    ran: set[str] = set()
    for output in outputs:
        text, _, names = output.rpartition(_RAN)
        print(text, end="")
        ran.update(names.split())
    print(f"quick: {len(ran)} of {len(whole) + len(others)} test files near the changes have run")
    if left := [file for file in whole if file not in {*ran, *ALWAYS}]:
        print(
            f"quick: {len(left)} changed test files did not run to their end; run them:\n"
            f"  {sys.executable} -m pytest -q {' '.join(left)}"
        )
    return int(any(each.returncode for each in running))


# ---------------------------------------------------------------- lint, C++


def run_lint(changed: Sequence[Path]) -> int:
    """Lint the changed files, and check all types; return an exit status.

    If a tool can fix the failure, print the tool's command.
    """
    tools = Path(sys.executable).parent
    python = [str(file) for file in changed if file.suffix in (".py", ".pyi", ".md")]
    code = [name for name in python if not name.endswith(".md")]
    cpp = [str(file) for file in changed if file.suffix in CPP_ENDINGS]
    commands: list[tuple[list[str], list[str]]] = [(["mypy", "."], [])]
    if code:
        commands.append((["ruff", "check", *code], ["ruff", "check", "--fix", *code]))
    if python:
        commands.append((["ruff", "format", "--check", *python], ["ruff", "format", *python]))
    if cpp:
        commands.append(
            (["clang-format", "--dry-run", "-Werror", *cpp], ["clang-format", "-i", *cpp])
        )
    status = 0
    for (tool, *arguments), mend in commands:
        done = subprocess.run([str(tools / tool), *arguments], cwd=ROOT, check=False)
        if done.returncode:
            status = 1
            if mend:
                print(f"quick: to mend what can be mended: {' '.join(mend)}", flush=True)
    return status


_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_SUITE = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", re.MULTILINE)


def near_cpp_tests(changed: Sequence[Path]) -> list[Path]:
    """Return the C++ test files that a change may break, sorted from nearest to farthest.

    A change may break tests in the folder of a changed file, or in the nearest parent folder with
    tests. A change to a header may break tests that include the header, directly or through other
    headers. A change to a `.cc` or `.inl` file may break tests that include the file's header.
    Changed test files count as the nearest. Tests in the folder of a changed file and tests that
    include a changed header directly are equally near. Tests in a parent folder of a changed file
    are less near than tests in the file's own folder.
    """
    cpp = [file for file in changed if file.suffix in CPP_ENDINGS]
    cpp = [file for file in cpp if CSRC in file.parents or CPP_TESTS in file.parents]
    texts = _cpp_texts()
    users: dict[Path, set[Path]] = defaultdict(set)
    for file, text in texts.items():
        for name in _INCLUDE.findall(text):
            homes = (
                CSRC / name,
                CPP_TESTS / name,
                CPP_TESTS / "support" / name,
                file.parent / name,
            )
            for home in homes:
                if home in texts:
                    users[home].add(file)
    tests = {file for file in texts if file.name.endswith("_test.cc")}
    distances = distances_from((file for file in cpp if file in texts), users)
    for file in cpp:
        own = CPP_TESTS / file.relative_to(CSRC).parent if CSRC in file.parents else file.parent
        folder = own
        while CPP_TESTS in folder.parents and not any(test.parent == folder for test in tests):
            folder = folder.parent
        near = {test: 1 if folder == own else 2 for test in tests if test.parent == folder}
        near.update(dict.fromkeys(users[file.with_suffix(".h")] & tests, 1))
        for test, distance in near.items():
            distances[test] = min(distances.get(test, distance), distance)
    return sorted(distances.keys() & tests, key=lambda test: (distances[test], test))


def _cpp_texts() -> dict[Path, str]:
    """Return a dict from the path of each C++ file, relative to the root, to the file's text."""
    return {
        path.relative_to(ROOT): path.read_text(encoding="utf-8")
        for folder in (CSRC, CPP_TESTS)
        for path in sorted((ROOT / folder).rglob("*.*"))
        if path.suffix in CPP_ENDINGS
    }


def cpp_filter(changed: Sequence[Path]) -> str:
    """Return the gtest filter for the tests in the files of `near_cpp_tests`; '' for no files."""
    texts = ((ROOT / file).read_text(encoding="utf-8") for file in near_cpp_tests(changed))
    suites = {name for text in texts for name in _SUITE.findall(text)}
    return ":".join(f"{name}.*:*/{name}.*:{name}/*" for name in sorted(suites))


def compile_cpp(near: Sequence[Path], directory: Path, seconds: float, jobs: int) -> list[Path]:
    """Compile C++ test files in order until the time limit; return the compiled files.

    Args:
        near: the test files.
        directory: build directory that CMake has configured with at least the files in `near`.
        seconds: time limit. The first 2 * `jobs` files are compiled even if the time limit passes.
        jobs: number of files that are compiled at a time.
    """
    end = time.monotonic() + seconds
    compiled: list[Path] = []
    while len(compiled) < len(near) and (not compiled or time.monotonic() < end):
        some = near[len(compiled) : len(compiled) + 2 * jobs]
        objects = [
            f"CMakeFiles/msrec_tests.dir/{test.relative_to(CPP_TESTS).as_posix()}.o"
            for test in some
        ]
        command = ["ninja", "-C", str(directory), "-j", str(jobs), "--quiet", *objects]
        done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
        if done.returncode:
            raise SystemExit(done.returncode)
        compiled += some
    print(f"quick: {len(compiled)} of {len(near)} files of C++ tests", file=sys.stderr)
    return compiled


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["lint", "near", "cpp", "pytest", "run"])
    parser.add_argument("--base", help="commit or branch; default: origin/main, or else main")
    parser.add_argument("--seconds", type=float, default=40, help="for tests; default: 40")
    parser.add_argument("--spent", type=float, default=0, help="seconds taken by C++ tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--whole", action="append", default=[], help="of `run`: even if slow")
    parser.add_argument(
        "files", nargs="*", help="of `run`, which `pytest` starts; of `cpp`: folder"
    )
    options = parser.parse_intermixed_args()
    if options.command == "run":
        return run_some(options.files, options.seconds, options.whole)
    known = git("rev-parse", "--verify", "--quiet", "origin/main")
    changed = changed_files(options.base or ("origin/main" if known else "main"))
    if options.command == "lint":
        return run_lint(changed)
    if options.command in ("near", "cpp"):
        tests = near_cpp_tests(changed)
        if options.command == "cpp":
            tests = compile_cpp(tests, Path(options.files[0]), CPP_SECONDS, options.jobs)
        print("|".join(test.relative_to(CPP_TESTS).as_posix() for test in tests))
        return 0
    seconds = min(options.seconds, max(options.seconds - options.spent, LEAST_SECONDS))
    return run_pytest(changed, seconds, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
