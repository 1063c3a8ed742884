# SPDX-License-Identifier: Apache-2.0
"""Tools that attack the library: a command each, and how to tell from its output what it found."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Finding", "GoogleTest", "NativeFuzz", "Program", "Pytest", "PythonFuzz", "Tool", "run_tool",
]  # fmt: skip

_SEED = "7"


@dataclass(frozen=True)
class Tool:
    """A program that must end with success where there is no defect.

    Args:
        limit: seconds after which it counts as hanging.
    """

    limit: float = 300

    @property
    def needs(self) -> str:
        """Part to build for it: "tests", "fuzz", "module", or "" for none."""
        return ""

    @property
    def title(self) -> str:
        """A few words on what it is."""
        raise NotImplementedError

    def command(self, root: Path) -> list[str]:
        """Return the command, to be run in the folder `root`."""
        raise NotImplementedError

    def said(self, output: str) -> str:
        """Return the line of the output that names the finding."""
        return _first(output, r".*(?:Error|error|FAILED|failed).*")


@dataclass(frozen=True)
class GoogleTest(Tool):
    """C++ tests.

    Args:
        names: filter, as --gtest_filter takes it.
    """

    names: str = "*"

    needs = "tests"

    @property
    def title(self) -> str:
        return f"C++ tests `{self.names}`"

    def command(self, root: Path) -> list[str]:
        program = root / "build" / "csrc-defects" / "msrec_tests"
        return [str(program), f"--gtest_filter={self.names}", "--gtest_fail_fast"]

    def said(self, output: str) -> str:
        # Tests behind the first failure are listed too, as skipped; a crash has no failure.
        names = re.findall(r"\[  FAILED  \] ([^ ,\n]+)", output)[:1]
        names = names or re.findall(r"\[ RUN +\] (.*)", output)
        why = _first(output, r"(?:terminate called|double free|malloc|free\(\)|corrupted).*")
        if not why:
            why = _first(output, r".*: Failure\n(?:.*\n)(?:.*)")
            why = " ".join(why.split("Failure", 1)[-1].split())
        return f"{names[-1] if names else '?'}: {why}"


@dataclass(frozen=True)
class NativeFuzz(Tool):
    """A fuzzer in C++ under ASan and UBSan.

    Args:
        target: its name.
        seconds: for which it looks.
    """

    target: str = ""
    seconds: int = 120

    needs = "fuzz"

    @property
    def title(self) -> str:
        return f"fuzzer `{self.target}`, ASan"

    def command(self, root: Path) -> list[str]:
        program = str(root / "build" / "csrc-defects-asan" / "msrec_fuzz")
        corpora = str(root / "tests" / "fuzz" / "corpus" / "native")
        return [program, corpora, "--seconds", str(self.seconds), "--seed", _SEED, self.target]

    def said(self, output: str) -> str:
        return _first(
            output, r"(?:.*ERROR: AddressSanitizer.*|.*runtime error.*|not done after.*)"
        ) or (_first(output, rf"target {self.target}:.*"))


@dataclass(frozen=True)
class PythonFuzz(Tool):
    """A fuzzer in Python.

    Args:
        target: its name.
        seconds: for which it looks.
    """

    target: str = ""
    seconds: int = 120

    needs = "module"

    @property
    def title(self) -> str:
        return f"fuzzer `{self.target}`"

    def command(self, root: Path) -> list[str]:
        options = ["--seconds", str(self.seconds), "--seed", _SEED, "--only", self.target]
        return [sys.executable, "-m", "tests.fuzz.run", *options]

    def said(self, output: str) -> str:
        return _first(output, rf"target {self.target}, .*")


@dataclass(frozen=True)
class Pytest(Tool):
    """Python tests.

    Args:
        names: files, or names of tests as pytest takes them.
    """

    names: tuple[str, ...] = ()

    needs = "module"

    @property
    def title(self) -> str:
        return f"`{' '.join(self.names)}`"

    def command(self, root: Path) -> list[str]:
        options = ["-q", "-x", "-p", "no:cacheprovider", "--no-header"]
        return [sys.executable, "-m", "pytest", *options, *self.names]

    def said(self, output: str) -> str:
        name = _first(output, r"(?:FAILED|ERROR) .*")
        why = _first(output, r"^E  .*").removeprefix("E").strip()
        return f"{name.split(' - ')[0]}: {why}"


@dataclass(frozen=True)
class Program(Tool):
    """A module of Python that ends with an error where it finds something.

    Args:
        module: its name.
    """

    module: str = ""

    needs = "module"

    @property
    def title(self) -> str:
        return f"`python -m {self.module}`"

    def command(self, root: Path) -> list[str]:
        return [sys.executable, "-m", self.module]

    def said(self, output: str) -> str:
        lines = [line for line in output.splitlines() if not line.startswith(" ")]
        return " | ".join(lines[-40:])[-300:]


@dataclass(frozen=True)
class Finding:
    """Outcome of a tool.

    Args:
        outcome: "found", "not found", "hangs" (it was ended at its limit), or "error" (it did not
            run).
        seconds: that it took.
        said: line of its output that names the finding.
    """

    outcome: str
    seconds: float
    said: str


def run_tool(tool: Tool, root: Path) -> Finding:
    """Run a tool on the tree in `root`, where what it needs has been built."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "ASAN_OPTIONS": "detect_stack_use_after_return=1:max_allocation_size_mb=512",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
    }
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        begin = time.monotonic()
        process = subprocess.Popen(
            tool.command(root),
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(tool.limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        seconds = time.monotonic() - begin
        output.seek(0)
        text = output.read()
    if code == 0:
        return Finding("not found", seconds, "")
    if isinstance(tool, Pytest) and code is not None and code > 1:
        return Finding("error", seconds, text[-2000:])
    said = " ".join(tool.said(text).split())[:300]
    if code is None:
        return Finding("hangs", seconds, f"did not end within {tool.limit:g} s; {said}")
    if code < 0:
        said = f"ended by {signal.Signals(-code).name}; {said}"
    if not said:
        return Finding("error", seconds, text[-2000:])
    return Finding("found", seconds, said)


def _first(text: str, pattern: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(0) if found else ""
