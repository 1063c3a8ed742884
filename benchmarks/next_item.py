# SPDX-License-Identifier: Apache-2.0
"""Recall and NDCG of baselines and networks for the next item, on real data split by global time.

    python -m benchmarks.next_item --data DIR --json OUT
    python -m benchmarks.next_item --data DIR --nets SASRec HSTU --seeds 5
    python -m benchmarks.next_item --data DIR --check

DIR has the folders `online-retail` with `online_retail.csv`, and `movielens-latest-small` with
`ratings.csv`. The files may also be compressed (`.csv.gz`). The tasks are in `sequences/tasks.py`,
and the baselines and their settings are in `sequences/baselines.py`. ALS and BPR need `pip install
-r benchmarks/sequences/requirements.txt`.

All items of the catalogue that are new to the user are ranked; an item with an equal score counts
as half a rank (mid rank). The last period of a data set is for tests, and the period before the
last is for validation. The settings of each baseline are chosen by NDCG@10 of the validation rows
alone. After the settings are chosen, the baseline learns from all events before the test period.
The column "beside the best" shows the difference between the model's NDCG@10 and the best
baseline's NDCG@10. A bootstrap over users gives the 95 % interval of the difference. The best
baseline has the highest NDCG@10 on the validation rows.

`--nets` also trains networks (`sequences/nets.py`), with settings that are also chosen on the
validation rows. The output has two rows per network. The first row of a network shows the network
without a baseline. The second row shows the network combined with the best baseline that counts
co-occurrences: an item's score is the network's score plus a weighted logarithm of the baseline's
score. The logarithm's weight is chosen by NDCG@10 on the validation rows. The figures are means
over the seeds, and the interval applies to the difference between means.

With `--settings FILE`, the benchmark takes the settings of the baselines from an earlier result and
does not search for settings.

With `--check`, the benchmark leaves out the last event of each user, uses fixed settings, and
compares the figures with the figures that another program measured earlier. All lines of an invoice
have the same time. The comparison shows how much the results depend on the order of lines with the
same time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks import bench_common
from benchmarks.sequences.baselines import BASELINES, CO_OCCURRENCE, GRIDS, installed
from benchmarks.sequences.figures import K, difference, figures_of
from benchmarks.sequences.learners import NETS, run_net
from benchmarks.sequences.tasks import (
    TASKS,
    Part,
    last_events,
    part_of,
    read_movielens,
    read_retail,
)

DAY = 86_400

RECENT = {"last": 10, "decay": 0.7}
CHAIN = {"skip": 0.7, "norm": 1.0, **RECENT}
# Recall@10 and NDCG@10 that another program measured. The other program orders the lines of an
# invoice by stock code.
MEASURED: dict[str, dict[str, tuple[Mapping[str, Any], float, float]]] = {
    "online-retail": {
        "popularity": ({"days": None}, 0.066, 0.037),
        "item-kNN": ({"shrink": 0}, 0.129, 0.078),
        "item-kNN, recent": ({"shrink": 0, **RECENT}, 0.246, 0.170),
        "Markov chain": (CHAIN, 0.306, 0.221),
    },
    "movielens-latest-small": {
        "popularity": ({"days": None}, 0.043, 0.019),
        "item-kNN": ({"shrink": 0}, 0.056, 0.026),
        "item-kNN, recent": ({"shrink": 0, **RECENT}, 0.105, 0.056),
        "Markov chain": (CHAIN, 0.118, 0.067),
    },
}
MOST_DIFFERENCE = 0.013  # one standard error of the recall over 610 users


def chosen_settings(
    name: str, part: Part, seed: int, progress: tqdm, known: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], float]:
    """Return the settings with the best NDCG@10 on the validation rows, and this NDCG@10.

    If `known` is not None, its settings and NDCG@10 are returned.
    """
    if known is not None:
        progress.update(len(GRIDS[name]))
        return known["settings"], known["valid_ndcg"]
    best: tuple[dict[str, Any], float] = ({}, -1.0)
    for settings in GRIDS[name]:
        ndcg = figures_of(part, BASELINES[name](part, settings, seed))["ndcg"]
        if ndcg > best[1]:
            best = settings, ndcg
        progress.update()
    return best


def run(name: str, options: argparse.Namespace, progress: tqdm) -> dict[str, Any]:
    """Return the figures of all baselines and networks on a task.

    Raises:
        ValueError: networks are requested without a baseline that counts co-occurrences.
    """
    task = TASKS[name]
    events = task.read(options.data)
    seconds = (task.days if options.days is None else options.days) * DAY
    end = events.time.max() + 1
    valid, test = (
        part_of(events, end - back * seconds, end - (back - 1) * seconds, task.together,
                options.rows, options.seed)
        for back in (2, 1)
    )  # fmt: skip
    record: dict[str, Any] = {
        "events": len(events.user),
        "days": seconds / DAY,
        **{
            each: {
                "known_events": len(part.events.user),
                "items": part.items,
                "rows": len(part.rows.user),
                "targets": len(part.rows.target),
                "users": len(set(part.rows.user.tolist())),
                "unknown_targets": part.unknown,
            }
            for each, part in (("valid", valid), ("test", test))
        },
    }
    ranks: dict[str, np.ndarray] = {}
    figures: dict[str, dict[str, Any]] = {}
    known = {}
    if options.settings is not None:
        known = json.loads(options.settings.read_text())["tasks"][name]["baselines"]
    for baseline in options.baselines:
        began = time.perf_counter()
        settings, ndcg = chosen_settings(
            baseline, valid, options.seed, progress, known.get(baseline)
        )
        ranks[baseline] = BASELINES[baseline](test, settings, options.seed)
        progress.update()
        figures[baseline] = {
            "settings": settings,
            "valid_ndcg": ndcg,
            **figures_of(test, ranks[baseline]),
            "seconds": time.perf_counter() - began,
        }
    best = max(options.baselines, key=lambda each: figures[each]["valid_ndcg"])
    for baseline in options.baselines:
        figures[baseline]["beside_best"] = difference(test, ranks[baseline], ranks[best])
    nets: dict[str, Any] = {}
    counting = [each for each in options.baselines if each in CO_OCCURRENCE]
    if options.nets and not counting:
        raise ValueError(
            f"--baselines must have one of {', '.join(CO_OCCURRENCE)} for the networks"
        )
    for kind in options.nets:
        by = max(counting, key=lambda each: figures[each]["valid_ndcg"])
        of_baseline = by, figures[by]["settings"]
        made = run_net(kind, name, valid, test, of_baseline, options.seeds)
        for row, each in made.items():
            each["beside_best"] = difference(test, each.pop("ranks"), ranks[best])
            nets[row] = each
        progress.update()
    return {**record, "best": best, "baselines": figures, "nets": nets}


def print_task(name: str, record: Mapping[str, Any]) -> None:
    """Print the figures of a task."""
    test = record["test"]
    print(
        f"\n{name}: {test['rows']:,} rows of {test['users']:,} users, {test['items']:,} items, "
        f"{test['unknown_targets']:.1%} of the targets left out as unknown"
    )
    print(
        f"{'baseline':<18} {'valid':>6} {f'R@{K}':>6} {f'NDCG@{K}':>7} {'MRR':>6}  beside the best"
    )
    for baseline, each in {**record["baselines"], **record["nets"]}.items():
        beside = each["beside_best"]
        print(
            f"{baseline:<18} {each['valid_ndcg']:6.4f} {each['recall']:6.4f} {each['ndcg']:7.4f} "
            f"{each['mrr']:6.4f}  {beside['difference']:+.4f} "
            f"({beside['low']:+.4f} to {beside['high']:+.4f})  {each['settings']}",
            flush=True,
        )


def check(data: Path, seed: int) -> tuple[dict[str, Any], bool]:
    """Predict each user's last event; return figures, and True if they are near `MEASURED`."""
    record: dict[str, Any] = {}
    is_near = True
    for name, measured in MEASURED.items():
        retail = name == "online-retail"
        part = last_events(read_retail(data, by_code=True) if retail else read_movielens(data), 3)
        print(f"\n{name}: {len(part.rows.user):,} users, {part.items:,} items")
        record[name] = {}
        for baseline, (settings, recall, ndcg) in measured.items():
            figures = figures_of(part, BASELINES[baseline](part, settings, seed))
            record[name][baseline] = {**figures, "measured": [recall, ndcg]}
            gaps = figures["recall"] - recall, figures["ndcg"] - ndcg
            is_near &= max(map(abs, gaps)) <= MOST_DIFFERENCE
            print(
                f"{baseline:<18} {figures['recall']:.4f} of {recall:.3f}, "
                f"{figures['ndcg']:.4f} of {ndcg:.3f}",
                flush=True,
            )
    part = last_events(read_retail(data), 3)
    figures = figures_of(part, BASELINES["Markov chain"](part, CHAIN, seed))
    record["order of the file"] = figures
    print(
        "\nonline-retail, lines of an invoice in the order of the file\n"
        f"{'Markov chain':<18} {figures['recall']:.4f}, {figures['ndcg']:.4f}"
    )
    return record, is_near


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _options(arguments)
    if options.check:
        record, is_near = check(options.data, options.seed)
        bench_common.save(options.json, {"check": record, "near": is_near})
        print("\nas before" if is_near else f"\nDIFFERENT by more than {MOST_DIFFERENCE}")
        return 0 if is_near else 1
    print(f"on {bench_common.machine()}")
    missing = [each for each in BASELINES if each not in installed()]
    if missing:
        print(f"left out, since implicit is not installed: {', '.join(missing)}")
    tries = sum(len(GRIDS[each]) + 1 for each in options.baselines) + len(options.nets)
    tries *= len(options.tasks)
    tasks: dict[str, Any] = {}
    with tqdm(total=tries, desc="settings", leave=False, disable=None) as progress:
        for name in options.tasks:
            tasks[name] = run(name, options, progress)
            print_task(name, tasks[name])
            bench_common.save(
                options.json, {"rows": options.rows, "left_out": missing, "tasks": tasks}
            )
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = bench_common.parser(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="directory of the data sets")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--baselines", nargs="+", choices=BASELINES, default=installed())
    parser.add_argument("--nets", nargs="*", choices=NETS, default=[], help="default: none")
    parser.add_argument("--seeds", type=int, default=5, help="of the networks; default 5")
    parser.add_argument("--settings", type=Path, help="earlier result, for the baselines' settings")
    parser.add_argument("--days", type=float, help="of each period; default: 30 or 365 by the task")
    parser.add_argument(
        "--rows", type=int, default=5000, help="most rows of each period; default 5000"
    )
    parser.add_argument("--check", action="store_true", help="compare with earlier figures")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
