# SPDX-License-Identifier: Apache-2.0
"""Put defects back one by one, and see which tool finds each and after how many seconds.

    python -m tests.defects.run [NUMBER ...] --json PATH

The tree is copied to a temporary folder, in which one defect at a time is put back and the tools
that shall find it are built and run: first a general one, then the test that came with the mend.
`--clean` runs the tools on the tree as it is, where they must find nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.defects.all_defects import DEFECTS
from tests.defects.build import Tree
from tests.defects.entry import ROOT, Defect
from tests.defects.tools import Tool, run_tool

COLUMNS = ("general", "regression")


def tools_of(defect: Defect, columns: list[str]) -> dict[str, Tool]:
    """Return the tools of a defect by the name of their column."""
    found = {name: getattr(defect, name) for name in columns}
    return {name: tool for name, tool in found.items() if tool is not None}


def measure(tree: Tree, defect: Defect, columns: list[str], clean: bool) -> dict[str, Any]:
    """Return the outcome of each tool; with `clean`, on the tree without the defect."""
    tools = tools_of(defect, columns)
    needs = {tool.needs for tool in tools.values()}
    row: dict[str, Any] = {"sentence": defect.sentence}
    with tree.with_edits(() if clean else defect.edits, needs):
        tree.build(tools.values())
        for name, tool in tools.items():
            finding = run_tool(tool, tree.root)
            if finding.outcome == "hangs" and defect.hangs and not clean:
                finding = replace(finding, outcome="found")
            row[name] = {
                "command": " ".join(tool.command(tree.root)).replace(f"{tree.root}/", ""),
                "outcome": finding.outcome,
                "seconds": round(finding.seconds, 1),
                "said": finding.said.replace(f"{tree.root}/", ""),
            }
            row[name]["command"] = row[name]["command"].replace(sys.executable, "python")
            print(f"{defect.number:2} {name}: {finding.outcome}, {finding.seconds:.1f} s")
            print(f"   {finding.said}", flush=True)
    return row


def write(path: Path, rows: dict[int, dict[str, Any]]) -> None:
    """Write outcomes, beside those that the file has of other defects."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for number, row in rows.items():
        known[str(number)] = {**known.get(str(number), {}), **row}
    ordered = {number: known[number] for number in sorted(known, key=int)}
    path.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def table(path: Path) -> str:
    """Return the outcomes of a file as a table of Markdown."""
    lines = [
        "| | defect | by a general tool | seconds | what it said | test of its mend, seconds |",
        "|---|---|---|---|---|---|",
    ]
    for number, row in json.loads(path.read_text(encoding="utf-8")).items():
        cells = [number, row["sentence"], *_cells(DEFECTS[int(number)], row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(defect: Defect, row: dict[str, Any]) -> list[str]:
    own = row.get("regression", {"outcome": "not run", "seconds": 0})
    test = f"{own['seconds']:g}" if own["outcome"] == "found" else f"**{own['outcome']}**"
    if defect.general is None:
        return ["**none would**", "", "", test]
    found = row.get("general", {"outcome": "not run", "seconds": 0, "said": ""})
    if found["outcome"] != "found":
        return [defect.general.title, f"**{found['outcome']}**", "", test]
    said = found["said"].replace("|", "/").replace("`", "'")[:120]
    return [defect.general.title, f"{found['seconds']:g}", f"`{said}`", test]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", type=int, nargs="*", metavar="NUMBER", help="default: all")
    parser.add_argument("--json", type=Path, help="file that gets the outcomes, and keeps others")
    parser.add_argument("--only", choices=COLUMNS, help="run one of the two tools alone")
    parser.add_argument("--clean", action="store_true", help="run the tools without the defects")
    parser.add_argument("--tree", type=Path, help="folder of the copy, kept for the next run")
    parser.add_argument(
        "--table", type=Path, help="print the outcomes in this file, and run nothing"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="of the compiler")
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
        return 0
    numbers = options.numbers or list(DEFECTS)
    unknown = [number for number in numbers if number not in DEFECTS]
    if unknown:
        parser.error(f"NUMBER must be in [1, {max(DEFECTS)}], got {unknown}")
    columns = [options.only] if options.only else list(COLUMNS)
    missed = []
    with tempfile.TemporaryDirectory(prefix="defects.") as temporary:
        tree = Tree(options.tree or Path(temporary) / ROOT.name, options.jobs)
        for number in numbers:
            try:
                row = measure(tree, DEFECTS[number], columns, options.clean)
            except subprocess.CalledProcessError as error:
                print(error.stdout[-3000:], error.stderr[-3000:], sep="\n", file=sys.stderr)
                print(f"{number:2} does not compile", file=sys.stderr)
                missed.append(number)
                continue
            if options.json:
                write(options.json, {number: row})
            outcomes = {row[name]["outcome"] for name in columns if name in row}
            wrong = "found" if options.clean else "not found"
            if not outcomes or outcomes & {wrong, "hangs", "error"}:
                missed.append(number)
    said = "where something was found" if options.clean else "which a tool has missed"
    print(f"{len(numbers)} defects, {said}: {missed or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
