# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks one after the other, and store each result in benchmarks/results.

    PYTHONPATH=. python benchmarks/run_all.py --disk DIRECTORY

Most benchmarks take about a minute, and a few take up to 35 minutes. Run the script while the
machine is idle. A benchmark is left out if a part that it needs is missing. The stored result of a
benchmark that is left out stays unchanged. At the end, the script rewrites the table in
benchmarks/README.md. The exit code is 1 if a benchmark failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bench_common
from suite import (  # type: ignore[import-not-found]
    MOVIELENS,
    SUITE,
    lacking,
    path_of,
)

from datasets.synthetic.ratings import write_ratings

ROOT = bench_common.ROOT
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "benchmarks" / "README.md"
BEGIN, END = "<!-- written by run_all.py: begin -->", "<!-- end -->"


def command_of(name: str, settings: str, disk: str, movielens: str) -> list[str]:
    """Return the command of a benchmark, without `--json`."""
    arguments = getattr(SUITE[name], settings).format(disk=disk, movielens=movielens)
    return [path_of(name), *shlex.split(arguments)]


def run(name: str, options: argparse.Namespace, disk: str) -> str:
    """Run a benchmark and store its result; return an error message, or ""."""
    out = (options.json / f"{name}.json").resolve()
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / out.name
        movielens = os.environ.get(MOVIELENS, "")
        if options.settings == "tiny":
            movielens = scratch
            write_ratings(Path(scratch))
        command = command_of(name, options.settings, disk, movielens)
        begin = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, *command, "--json", str(fresh)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                timeout=options.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"took more than {options.timeout:.0f} s"
        if done.returncode not in SUITE[name].codes:
            return f"exit code {done.returncode}"
        seconds = time.perf_counter() - begin
        store(fresh, out, name, options.settings, seconds)
    return ""


def store(fresh: Path, out: Path, name: str, settings: str, seconds: float) -> None:
    """Store a result with its origin; in the command, placeholders replace this machine's paths."""
    figures: dict[str, Any] = json.loads(fresh.read_text(encoding="utf-8"))
    record = {**bench_common.origin(), **figures}
    shown = command_of(name, settings, "DISK", "MOVIELENS")
    record |= {
        "script": path_of(name),
        "command": f"PYTHONPATH=. python {shlex.join(shown)}",
        "settings": settings,
        "wall_seconds": round(seconds, 1),
    }
    order = ("script", "command", "settings", "wall_seconds", "date", "commit", "machine")
    record = {key: record[key] for key in order} | record
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def needs(name: str, settings: str) -> list[str]:
    """Return what a run needs, such as 'MovieLens'; tiny runs use synthetic data sets."""
    made_up = ("MovieLens", "Census-Income") if settings == "tiny" else ()
    return [n for n in SUITE[name].needs if n not in made_up]


def table(results: Path) -> list[str]:
    """Return the table of README.md: one line per benchmark, with its stored result."""
    lines = [
        "| script | measures | needs | arguments | stored result |",
        "|---|---|---|---|---|",
    ]
    for name, each in SUITE.items():
        path = results / f"{name}.json"
        stored = "none"
        if path.exists():
            result = json.loads(path.read_text(encoding="utf-8"))
            took = f"{result['wall_seconds']:.0f} s, {result['date'][:10]}"
            tiny = ", **tiny settings: no figures**" if result["settings"] == "tiny" else ""
            stored = f"[{took}](results/{name}.json){tiny}"
        script = Path(path_of(name)).name if not each.path else each.path
        link = f"[`{script}`]({os.path.relpath(ROOT / path_of(name), README.parent)})"
        arguments = each.minute.format(disk="DISK", movielens="MOVIELENS")
        needed = ", ".join(each.needs)
        shown = f"`{arguments}`" if arguments else ""
        lines.append(f"| {link} | {each.measures} | {needed} | {shown} | {stored} |")
    return lines


def write_readme(results: Path) -> None:
    """Rewrite the table of README.md."""
    text = README.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    README.write_text(
        "\n".join([head + BEGIN, *table(results), END]) + tail,
        encoding="utf-8",
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SUITE, default=list(SUITE), help="only these")
    parser.add_argument(
        "--settings",
        choices=("minute", "tiny"),
        default="minute",
        help="tiny: a few seconds each, to see that they run; the figures mean nothing",
    )
    parser.add_argument("--disk", type=Path, help="directory for tiers; default: a temporary one")
    parser.add_argument(
        "--timeout", type=float, default=3600.0, help="seconds a benchmark may take"
    )
    parser.add_argument(
        "--json", type=Path, metavar="DIRECTORY", default=RESULTS, help="for the results"
    )
    parser.add_argument("--readme", action="store_true", help="only write the table of README.md")
    options = parser.parse_args(arguments)
    wrong: dict[str, str] = {}
    for name in [] if options.readme else options.only:
        missing = [reason for reason in map(lacking, needs(name, options.settings)) if reason]
        if missing:
            print(f"== {name} is left out: {'; '.join(missing)}", flush=True)
            continue
        print(f"== {name}", flush=True)
        with tempfile.TemporaryDirectory(dir=options.disk) as disk:
            reason = run(name, options, disk)
        if reason:
            wrong[name] = reason
    if options.json.resolve() == RESULTS:
        write_readme(RESULTS)
    for name, reason in wrong.items():
        print(f"FAILED: {name}: {reason}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
