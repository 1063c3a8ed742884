# SPDX-License-Identifier: Apache-2.0
"""Draw the plots in docs/images from the stored results in benchmarks/results.

    PYTHONPATH=. python benchmarks/plots.py

The script refuses results from tiny settings, because such results mean nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]


def online_movielens(result: dict[str, Any], path: Path) -> None:
    """Plot AUC along MovieLens' stream, as the mean over the seeds.

    Args:
        result: the benchmark's result; `curves` has a list of AUCs per update interval ("static"
            means no update). Each AUC covers `window` events, and begins `every` events after the
            previous AUC.
        path: path of the plot, .png.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from PIL import Image

    figure, axes = pyplot.subplots(figsize=(7, 3.4), dpi=80)
    for name, curve in result["curves"].items():
        at = result["window"] + result["every"] * np.arange(len(curve))
        text = "left as it was" if name == "static" else f"updated every {name} events"
        axes.plot(at, curve, label=text, color="black" if name == "static" else None)
    axes.set_xlabel("ratings of the last 20 %, in order of time")
    axes.set_ylabel(f"AUC of the last {result['window']:,}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    with Image.open(path) as picture:  # with a palette, the file is a third as large
        small = picture.convert("RGB").quantize(64)
    small.save(path, optimize=True)


def _draw_dynamic_features(result: dict[str, Any], path: Path) -> None:
    from examples.dynamic_features.plot import draw

    draw(result, path)


# Name of a plot -> (name of the result, function that draws the plot).
PICTURES: dict[str, tuple[str, Callable[[dict[str, Any], Path], None]]] = {
    "dynamic_features.png": ("example_dynamic_features", _draw_dynamic_features),
    "online_movielens.png": ("online_movielens", online_movielens),
}


def main(arguments: list[str] | None = None) -> int:
    """Draw the plots; return the exit code: 1 if a result is missing or tiny."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="DIRECTORY",
        default=ROOT / "benchmarks" / "results",
        help="of the results",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES))
    options = parser.parse_args(arguments)
    left_out = 0
    for name in options.only:
        stem, draw = PICTURES[name]
        source = options.json / f"{stem}.json"
        result = json.loads(source.read_text(encoding="utf-8")) if source.exists() else None
        if result is None or result.get("settings") == "tiny":
            reason = "is missing" if result is None else "is of tiny settings"
            print(f"{name} is left out: {source} {reason}", file=sys.stderr)
            left_out += 1
            continue
        draw(result, options.out / name)
        print(options.out / name)
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
