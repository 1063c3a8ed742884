# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec doctor`: run each probe in a process of its own, and print its line."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import IO

from mindspore_rec.command.doctor.line import BROKEN, MISSING, Asked, Line
from mindspore_rec.command.doctor.probes import PROBES
from mindspore_rec.command.options import Result

__all__ = ["run"]

# The process of a probe imports the same modules as this process.
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop(1))
from mindspore_rec.command.doctor.probes import main
main()
"""
_TERM_SECONDS = 2.0
_SLOWER = "If this machine is busy or slow, run this doctor with --only {} --seconds {:.0f}."
_AGAIN = "Run this doctor with --only {} again, and look at the machine's log if it repeats."


def run(options: argparse.Namespace) -> Result:
    """Print the line of each item as soon as the item's probe ends."""
    names = list(PROBES) if options.only is None else _names(options.only)
    asked = Asked(options.directory, options.kafka, options.seconds)
    lines: dict[str, Line] = {}
    for name in names:
        lines[name] = answer(name, asked)
        print(lines[name].text(name), flush=True)
    unusable = [
        name for name in names if PROBES[name].needed and lines[name].state in (BROKEN, MISSING)
    ]
    if unusable:
        print(f"mindspore_rec cannot be used here, because of: {', '.join(unusable)}")
    elif options.only is None:
        print("mindspore_rec can be used here")
    figures = {name: asdict(line) for name, line in lines.items()}
    return Result({"usable": not unusable, "items": figures}, code=1 if unusable else 0)


def answer(name: str, asked: Asked) -> Line:
    """Return the line of an item, even if its probe crashes or does not end.

    Args:
        name: name of the item, a key of `PROBES`.
        asked: options of the probe.
    """
    probe = PROBES[name]
    command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path, default=str), name]
    # Output goes to files in memory: a pipe may outlive the probe, and a disk may be full.
    with _in_memory("answer") as printed, _in_memory("errors") as errors:
        process = subprocess.Popen(
            [*command, json.dumps(asdict(asked))],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = process.wait(probe.limit(asked))
        except subprocess.TimeoutExpired:
            _end(process)
            limit = probe.limit(asked)
            return Line(BROKEN, f"no answer within {limit:.0f} s", _SLOWER.format(name, limit * 5))
        except BaseException:  # Ctrl-C does not reach the probe, which has a session of its own
            _end(process)
            raise
        text, log = _text(printed), _text(errors)
    try:
        return Line(**json.loads(text))
    except ValueError:
        return Line(BROKEN, f"the probe {_how(code)}{_last(log)}", _AGAIN.format(name))


def _names(text: str) -> Sequence[str]:
    """Return the items of `--only`, in the order of docs/command.md."""
    wanted = text.split(",")
    for name in wanted:
        if name not in PROBES:
            raise ValueError(f"--only {name}: the items are {', '.join(PROBES)}")
    return [name for name in PROBES if name in wanted]


def _in_memory(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(name), "w+b")


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the processes of a probe, and do not wait for a process that the kernel blocks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_SECONDS)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"crashed with {signal.Signals(-code).name}"
    except ValueError:
        return f"crashed with signal {-code}"


def _last(text: str) -> str:
    """Return the last line of a probe's output, in brackets."""
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    return f" ({lines[-1][:300]})" if lines else ""
