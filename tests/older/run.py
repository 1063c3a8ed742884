# SPDX-License-Identifier: Apache-2.0
"""Run the wheel for x86-64 on Debian 11, and compare it with this machine.

    bash build.sh older                     # all parts
    bash build.sh older -- --part readme    # one part

The parts:

* `about`: versions of Debian, glibc, Python and MindSpore.
* `doctor`: `mindspore-rec doctor` finds that the library can be used, and prints its lines.
* `readme`: the README's example learns.
* `digests`: tables, rows of int8 and int4 and deltas have the same bits as here.
* `command`: `mindspore-rec` trains, evaluates and predicts, from the file that the example wrote.

The system is made by `tests.older.system`. What is missing on the machine is a failure.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.arm.run import System, digests, doctor, empty, readme, run
from tests.older.system import ROOT, OlderSystem

ABOUT = """import platform, importlib.metadata as metadata
print("Debian", open("/etc/debian_version").read().strip(), *platform.libc_ver(), "Python",
      platform.python_version(), "MindSpore", metadata.version("mindspore"))"""


def about(system: System) -> str:
    """Return the versions."""
    return run(system.python("-c", ABOUT), cwd=empty(system.folder / "outside")).strip()


def command(system: System) -> str:
    """Train, evaluate and predict with the command, from a file."""
    folder = empty(system.folder / "command")
    example = system.folder / "example" / "clicks.parquet"
    if not example.exists():
        readme(system)
    shutil.copyfile(example, folder / "clicks.parquet")

    def rec(*arguments: str) -> str:
        return run(system.python("-W", "ignore", "-m", "mindspore_rec", *arguments), cwd=folder)

    (folder / "clicks.yaml").write_text(rec("init", "clicks.parquet", "--label", "clicked"))
    rec("train", "clicks.yaml")
    rec("eval", "clicks.yaml", "--json", "metrics.json")
    rec("predict", "clicks.yaml", "clicks.parquet", "-o", "scores.parquet")
    scores = folder / "scores.parquet"
    return f"wrote {scores.stat().st_size} bytes of predictions, {_auc(folder / 'metrics.json')}"


def _auc(metrics: Path) -> str:
    """Return the part with the AUC of a file of metrics."""
    text = metrics.read_text()
    match = re.search(r'"auc": [0-9.]+', text)
    if match is None:
        sys.exit(text)
    return match[0]


PARTS: dict[str, Callable[[System], str]] = {
    "about": about,
    "doctor": doctor,
    "readme": readme,
    "digests": digests,
    "command": command,
}


def main() -> None:
    """Run the parts that the command line names, or all."""
    parser = argparse.ArgumentParser(description="Run the wheel for x86-64 on Debian 11.")
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--wheel", type=Path, help="default: that in output/wheels")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "older")
    chosen = parser.parse_args()
    wheels = sorted((ROOT / "output/wheels").glob("mindspore_rec-*-cp311-*x86_64.whl"))
    if chosen.wheel is None and not wheels:
        sys.exit("there is no wheel: bash build.sh wheels -- --machine x86_64")
    system = OlderSystem(chosen.folder, chosen.wheel or wheels[-1])
    for name in chosen.part or PARTS:
        started = time.monotonic()
        said = PARTS[name](system)
        print(f"{name}: {said} ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
