# SPDX-License-Identifier: Apache-2.0
"""Run a benchmark in this tree and in another tree, in pairs, and compare the results.

    python tools/paired.py ../before benchmarks/embedding_step.py --figure inside_operators_ms \
        --figure ours_ms --pairs 20 --json output/paired.json -- --no-vanilla --rows 1000000

The trees must be prepared (`bash build.sh prepare`). Each run is a separate process with the
interpreter of the run's tree. The order of the two trees alternates from pair to pair. For each
figure, the tool prints the medians of both trees, and the ratio of this tree's median to the other
tree's median. The tool also prints the 95 % interval of the ratio, by bootstrap over the pairs. The
name of a number in nested results contains dots, as in `shapes.criteo_26.ours_step_ms`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import bench_common

RESAMPLES = 10_000


def run(tree: Path, script: str, arguments: list[str]) -> dict[str, Any]:
    """Run a source tree's benchmark once, and return the measured figures."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "figures.json"
        python = tree / ".venv" / "bin" / "python"
        command = [str(python), script, *arguments, "--json", str(result)]
        environment = {**os.environ, "GLOG_v": "3", "PYTHONPATH": str(tree)}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{script} of {tree} failed:\n{done.stderr[-2000:]}")
        return dict(json.loads(result.read_text(encoding="utf-8")))


def figure(results: dict[str, Any], name: str) -> float:
    """Return the number with the dotted name `name` in nested results."""
    value: Any = results
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            raise SystemExit(f"--figure {name}: the results have no {part!r}")
        value = value[part]
    return float(value)


def compare(this: list[float], other: list[float]) -> dict[str, Any]:
    """Return the medians, the ratio of the medians, and a bootstrap 95 % interval of the ratio."""
    pairs = np.array([this, other])
    chosen = np.random.default_rng(0).integers(0, len(this), (RESAMPLES, len(this)))
    medians = np.median(pairs[:, chosen], axis=2)
    low, high = np.percentile(medians[0] / medians[1], [2.5, 97.5])
    return {
        "this": statistics.median(this),
        "other": statistics.median(other),
        "ratio": statistics.median(this) / statistics.median(other),
        "low": float(low),
        "high": float(high),
        "pairs": [list(pair) for pair in zip(this, other, strict=True)],
    }


def main() -> None:
    """Run the pairs and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="root of the other tree")
    parser.add_argument("script", help="benchmark, relative to the root of a tree")
    parser.add_argument("--figure", action="append", required=True, help="name of a result")
    parser.add_argument("--pairs", type=int, default=20, help="number of pairs; default: 20")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments_of_script: list[str] = []
    arguments = sys.argv[1:]
    if "--" in arguments:
        at = arguments.index("--")
        arguments, arguments_of_script = arguments[:at], arguments[at + 1 :]
    options = parser.parse_args(arguments)
    if options.pairs < 2:
        parser.error(f"--pairs must be at least 2, got {options.pairs}")
    trees = [bench_common.ROOT, options.other.resolve()]
    numbers: dict[str, list[list[float]]] = {name: [[], []] for name in options.figure}
    for pair in tqdm(range(options.pairs), unit="pair"):
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            results = run(trees[which], options.script, arguments_of_script)
            for name in options.figure:
                numbers[name][which].append(figure(results, name))
    compared = {name: compare(*both) for name, both in numbers.items()}
    for name, each in compared.items():
        print(
            f"{name}: {each['this']:.4g} of {each['other']:.4g}, "
            f"ratio {each['ratio']:.3f} ({each['low']:.3f} to {each['high']:.3f})"
        )
    bench_common.save(options.json, {"arguments": arguments_of_script, "figures": compared})


if __name__ == "__main__":
    main()
