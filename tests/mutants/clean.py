# SPDX-License-Identifier: Apache-2.0
"""Seconds that tests take on the code as it is, which limit them on a mutant.

They are kept in a file beside the digest of the test's text: only tests that have changed, or are
new, run again.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support.slow_tests import SLOW
from tools import quick

__all__ = ["CleanTimes"]


class CleanTimes:
    """Times of tests without a mutant.

    Args:
        root: a tree as it is, in which they run.
        kept: file with the times of earlier runs.
    """

    def __init__(self, root: Path, kept: Path) -> None:
        self._root = root
        self._kept = kept
        known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        self._known: dict[str, dict[str, float]] = known

    def of_files(self, names: Iterable[str], jobs: int) -> dict[str, float]:
        """Return the seconds of each file of tests in Python; slow and failing ones are left out.

        Args:
            names: of the files, in the tree.
            jobs: files that run side by side.
        """
        keys = {name: self._key(name, [name]) for name in names if name not in SLOW}
        unknown = [name for name, key in keys.items() if key not in self._known]
        if unknown:
            times = _seconds_of_files(self._root, unknown, jobs)
            measured = ((name, keys[name]) for name in unknown)
            self._keep({k: {name: times[name]} if name in times else {} for name, k in measured})
        return {name: self._known[key][name] for name, key in keys.items() if self._known[key]}

    def of_native(self, program: Path, folder: str) -> dict[str, float]:
        """Return the seconds of each test in a folder of C++; failing ones are left out."""
        paths = (self._root / folder).rglob("*_test.cc")
        names = sorted(path.relative_to(self._root).as_posix() for path in paths)
        key = self._key(folder, names)
        if key not in self._known:
            wanted = quick.cpp_filter([Path(name) for name in names])
            self._keep({key: _seconds_of_native(self._root, program, wanted)})
        return self._known[key]

    def _key(self, name: str, files: Iterable[str]) -> str:
        data = b"".join((self._root / file).read_bytes() for file in files)
        return f"{name} {hashlib.sha256(data).hexdigest()[:16]}"

    def _keep(self, times: dict[str, dict[str, float]]) -> None:
        self._known = {**times, **self._known}
        self._kept.parent.mkdir(parents=True, exist_ok=True)
        self._kept.write_text(json.dumps(self._known, indent=1) + "\n", encoding="utf-8")


def _seconds_of_files(root: Path, files: Sequence[str], jobs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        report = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
        command += ["-n", str(jobs), "--dist", "loadfile", "-o", "junit_family=xunit1"]
        command += [f"--junit-xml={report}", *files]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        if not report.exists():
            raise RuntimeError(
                f"the tests of the tree as it is did not run:\n{done.stdout[-3000:]}"
            )
        return _seconds_of_report(report)


def _seconds_of_report(report: Path) -> dict[str, float]:
    """Return the seconds of each file in a report of pytest in which all tests have passed."""
    seconds: dict[str, float] = defaultdict(float)
    failing = set()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        file = case.get("file", "")
        seconds[file] += float(case.get("time", 0))
        if any(each.tag in ("failure", "error") for each in case):
            failing.add(file)
    return {file: round(each, 2) for file, each in seconds.items() if file not in failing}


def _seconds_of_native(root: Path, program: Path, wanted: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        report = Path(folder) / "tests.json"
        command = [str(program), f"--gtest_filter={wanted}", f"--gtest_output=json:{report}"]
        subprocess.run([*command, "--gtest_brief=1"], cwd=root, capture_output=True)
        suites = json.loads(report.read_text(encoding="utf-8"))["testsuites"]
    return {
        f"{suite['name']}.{case['name']}": float(case["time"].rstrip("s"))
        for suite in suites
        for case in suite["testsuite"]
        if "failures" not in case
    }
