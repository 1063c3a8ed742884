# SPDX-License-Identifier: Apache-2.0
"""Inspect, verify or compact an SSD tier: `python -m mindspore_rec.ssd --help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mindspore_rec._native import SsdCorruptionError, SsdStore

_DESCRIPTION = """\
inspect prints what an SSD tier holds, by segment. verify reads every record and checks it; it ends
with status 1 when something is damaged. compact drops overwritten and erased rows. None works while
another process has the tier open; inspect and verify change nothing."""


def _open(path: Path, **options: Any) -> SsdStore:
    # Use the page cache, because some file systems do not support O_DIRECT.
    return SsdStore(path, direct=False, **options)


def inspect(path: Path) -> dict[str, Any]:
    """Return statistics and segments of the tier at `path`."""
    with _open(path, read_only=True) as store:
        return {"path": str(path), **store.stats(), "segment_list": store.segments()}


def verify(path: Path) -> dict[str, Any]:
    """Read and check every record of the tier at `path`, and return the problems found."""
    try:
        with _open(path, read_only=True) as store:
            rows, problems = len(store), store.verify()
    except SsdCorruptionError:  # the tier does not even open
        rows, problems = 0, SsdStore.verify_files(path)
    return {"path": str(path), "rows": rows, "ok": not problems, "problems": problems}


def compact(path: Path) -> dict[str, Any]:
    """Drop overwritten and erased rows; return the statistics before and after the compaction."""
    with _open(path, background_gc=False) as store:
        before = store.stats()
        store.compact()
        after = store.stats()
    figures = ("rows", "disk_bytes", "segments", "space_amplification")
    return {
        "path": str(path),
        "before": {name: before[name] for name in figures},
        "after": {name: after[name] for name in figures},
    }


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"


def _text(command: str, result: dict[str, Any]) -> str:
    if command == "verify":
        lines = [
            f"{each['path']}, byte {each['offset']}: {each['problem']}"
            for each in result["problems"]
        ]
        verdict = "nothing is damaged" if result["ok"] else f"{len(lines)} problems"
        return "\n".join([*lines, f"{result['path']}: {result['rows']:,} rows, {verdict}"])
    if command == "compact":
        before, after = result["before"], result["after"]
        return (
            f"{result['path']}: {after['rows']:,} rows, {_size(before['disk_bytes'])} in "
            f"{before['segments']} segments -> {_size(after['disk_bytes'])} in "
            f"{after['segments']}"
        )
    lines = [
        f"{result['path']}: {result['rows']:,} rows of {result['row_bytes']} bytes, "
        f"{_size(result['disk_bytes'])} on disk "
        f"({result['space_amplification']:.2f} times the rows), "
        f"{_size(result['index_bytes'])} of memory to find them",
        f"{'segment':<24}{'records':>12}{'live rows':>12}{'tombstones':>12}{'size':>14}",
    ]
    for each in result["segment_list"]:
        lines.append(
            f"{each['name']:<24}{each['records']:>12,}{each['live_rows']:>12,}"
            f"{each['tombstone_records']:>12,}{_size(each['bytes']):>14}"
            + ("" if each["sealed"] else "  not closed")
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m mindspore_rec.ssd", description=_DESCRIPTION)
    parser.add_argument("command", choices=("inspect", "verify", "compact"))
    parser.add_argument("path", type=Path, help="directory of the tier")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    run = {"inspect": inspect, "verify": verify, "compact": compact}[options.command]
    try:
        result = run(options.path)
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(result, indent=2) if options.json else _text(options.command, result))
    return 0 if result.get("ok", True) else 1
