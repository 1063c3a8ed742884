# SPDX-License-Identifier: Apache-2.0
"""Training steps whose dense layers run on a GPU, compared with steps on the same machine's cores.

    python benchmarks/gpu_step.py --onednn LIBDNNL --cuda CUDA --check
    python benchmarks/gpu_step.py --onednn LIBDNNL --cuda CUDA --json OUT

The script needs neither MindSpore nor the package. The script opens two libraries by their paths:
the native core, and oneDNN (MindSpore ships a copy, `mindspore/lib/libdnnl.so.3`). `--devices cpu`
measures the cores alone.

A step consists of the lookup of Zipf-distributed ids in a table in host memory, the network's
forward pass, the logistic loss, the backward pass, Adam on the weights, and a lazy update of the
rows. If a GPU is used, only the layers run on the GPU; rows, weights and gradients are copied over
the bus. Steps of the devices alternate, and results are medians.

`--check` computes every layer and network on both devices with the same inputs and compares the
results. The exit code is 1 if the two devices' results differ, if a second run on the tested device
does not repeat the results bit for bit, or if no program is compared.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench_common
import numpy as np
from gpu.bus import bus_gbs
from gpu.check import check
from gpu.core import HOST, Core, find_native
from gpu.shapes import SHAPES, Batches
from gpu.training import PARTS, Tables, Training, bus_bytes, flop

PRECISIONS = ("float32", "bfloat16")


def card() -> str:
    """Return the GPUs and their driver from nvidia-smi; "" without a GPU."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def measured(
    trainings: dict[str, Training], batch: int, steps: int, warmup: int, seconds: float
) -> dict[str, dict[str, Any]]:
    """Return samples/s and each part's milliseconds for each device; the devices run steps in turn.

    Args:
        trainings: device -> training.
        batch: samples per step.
        steps: counted steps per device.
        warmup: steps per device before the counted steps.
        seconds: time limit after which no further step begins; at least three steps run.
    """
    spent: dict[str, list[dict[str, float]]] = {device: [] for device in trainings}
    begin = time.perf_counter()
    for k in range(-warmup, steps):
        if k >= 3 and time.perf_counter() - begin > seconds:
            break
        for device, training in trainings.items():
            parts = training.step(k)
            if k >= 0:
                spent[device].append(parts)
    figures: dict[str, dict[str, Any]] = {}
    for device, each in spent.items():
        whole = np.array([sum(parts.values()) for parts in each])
        figures[device] = {
            "steps": len(each),
            "samples_per_s": batch / float(np.median(whole)),
            "step_ms": float(np.median(whole)) * 1e3,
            "fastest_ms": float(whole.min()) * 1e3,
            "parts_ms": {
                name: float(np.median([parts[name] for parts in each])) * 1e3 for name in PARTS
            },
            "loss": float(trainings[device].loss[0]),
        }
    return figures


def add_rates(found: dict[str, Any], work: float, copied: dict[str, int], options: Any) -> None:
    """Add the share of the peak speed, and the bus's share of the time, to a device's results."""
    layers = (found["parts_ms"]["forward"] + found["parts_ms"]["backward"]) / 1e3
    found["layers_tflops"] = work / layers / 1e12
    peaks = dict(zip(PRECISIONS, options.peak_tflops or [], strict=False))
    if found["precision"] in peaks and found["device"] != HOST:
        peak = peaks[found["precision"]] * 1e12
        found["share_of_peak_in_layers"] = work / peak / layers
        found["share_of_peak_in_step"] = work / peak * 1e3 / found["step_ms"]
    if options.bus_gbs and found["device"] != HOST:
        # The copies to the GPU and the copies back do not overlap, because a row must arrive on the
        # GPU before its gradient can return.
        moved = sum(copied.values()) / options.bus_gbs / 1e9
        found["bus_ms"] = moved * 1e3
        found["share_of_layers_for_bus"] = moved / layers
        found["share_of_step_for_bus"] = moved * 1e3 / found["step_ms"]


def show(found: dict[str, Any]) -> None:
    """Print the results of a device."""
    parts = "  ".join(f"{name} {ms:.2f}" for name, ms in found["parts_ms"].items())
    rates = f"{found['layers_tflops']:.2f} TFLOP/s in layers"
    if "share_of_step_for_bus" in found:
        rates += f", bus {found['bus_ms']:.2f} ms"
    print(
        f"{found['network']:13s} {found['precision']:8s} {found['rows']:8s} {found['batch']:6d} "
        f"{found['device']:7s} {found['samples_per_s']:12,.0f} samples/s  "
        f"{found['step_ms']:8.2f} ms  [{parts}]  {rates}",
        flush=True,
    )


def measure(core: Core, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all requested measurements; return the results."""
    results: list[dict[str, Any]] = []
    tables: dict[tuple[int, str], Tables] = {}
    for name in options.networks:
        shape = SHAPES[name]
        for row_type in options.row_types:
            where = (shape.fields, row_type)
            if where not in tables:
                tables[where] = Tables(core, shape.fields, options.rows, options.sparse, row_type)
            for batch in options.batch:
                batches = Batches.draw(shape, batch, options.rows, options.zipf, options.seed)
                for precision in options.precision:
                    trainings = {}
                    for device in options.devices:
                        core.use(device)
                        made = Training(core, shape, precision, batches, tables[where])
                        trainings[device] = made
                    taken = measured(
                        trainings, batch, options.steps, options.warmup, options.seconds
                    )
                    copied = bus_bytes(shape, batch, 2 if row_type == "bfloat16" else 4)
                    work = flop(shape, batch)
                    for device, figures in taken.items():
                        result = {
                            "network": name,
                            "precision": precision,
                            "rows": row_type,
                            "batch": batch,
                            "device": device,
                            **figures,
                            "flop_per_step": work,
                            "bus_bytes": copied,
                        }
                        add_rates(result, work, copied, options)
                        show(result)
                        results.append(result)
                    del trainings
                    gc.collect()
    for each in tables.values():
        each.close()
    return results


def ratios(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the ratio of samples/s on each GPU to samples/s on the host's cores."""
    keys = ("network", "precision", "rows", "batch")
    host = {tuple(r[k] for k in keys): r["samples_per_s"] for r in results if r["device"] == HOST}
    by_host = {}
    for r in results:
        where = tuple(r[k] for k in keys)
        if r["device"] != HOST and where in host:
            by_host[f"{' '.join(map(str, where))} {r['device']}"] = r["samples_per_s"] / host[where]
    return by_host


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = bench_common.parser(__doc__.splitlines()[0])
    add = parser.add_argument
    add("--native", dest="core", type=Path, help="the native core; default: the core of this clone")
    add("--onednn", type=Path, help="oneDNN's library; by default MindSpore's copy")
    add("--cuda", type=Path, help="folder below which libnvrtc and libcublasLt are")
    add("--cache", type=Path, help="folder of compiled kernels")
    add("--devices", nargs="+", default=[HOST, "cuda:0"], help="for --check the reference first")
    add("--check", action="store_true", help="compare results instead of times")
    add("--only", default="", help="of --check: programs whose names contain this")
    add("--quiet", action="store_true", help="of --check: print failures only")
    add("--check-batch", type=int, nargs="+", default=[1, 3, 300, 4096], help="rows of --check")
    add("--networks", nargs="+", choices=SHAPES, default=list(SHAPES), help="what is trained")
    add("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="of products")
    add("--row-types", nargs="+", choices=PRECISIONS, default=["float32"], help="of tables")
    add("--batch", type=int, nargs="+", default=[4096, 16000, 65536], help="samples of a step")
    add("--rows", type=int, default=2_000_000, help="ids in a table")
    add("--zipf", type=float, default=1.1, help="exponent of the ids")
    add("--sparse", choices=("adam", "adagrad"), default="adam", help="rule of the rows")
    add("--steps", type=int, default=20, help="counted steps")
    add("--warmup", type=int, default=3, help="steps before them")
    add("--seconds", type=float, default=4.0, help="of a network at a batch; 3 steps at least")
    add("--threads", type=int, default=0, help="of the native core; 0: as many as cores")
    add("--peak-tflops", type=float, nargs=2, help="of the GPU: float32, bfloat16")
    add("--bus-gbs", type=float, help="of the bus, a way; measured by default where CUDA is")
    options = parser.parse_args()
    if options.check and len(options.devices) != 2:
        parser.error("--check compares two devices: --devices REFERENCE TESTED")
    if options.cuda is None and any(device != HOST for device in options.devices):
        parser.error("a GPU needs --cuda, the folder of CUDA's libraries; or take --devices cpu")
    return options


def onednn_of_mindspore() -> Path:
    """Return the path of MindSpore's copy of oneDNN, without importing MindSpore.

    Raises:
        FileNotFoundError: MindSpore is not installed.
    """
    for folder in sys.path:
        path = Path(folder) / "mindspore" / "lib" / "libdnnl.so.3"
        if path.is_file():
            return path
    raise FileNotFoundError("MindSpore is not installed: name oneDNN's library by --onednn")


def main() -> int:
    """Run the check or the measurements, and return the exit code."""
    options = parse()
    onednn = options.onednn or onednn_of_mindspore()
    core = Core(options.core or find_native(), onednn, options.cuda, options.cache)
    if options.threads:
        core.module.set_num_threads(options.threads)
    about = {
        "card": card(),
        "onednn": core.module.onednn_version(),
        "onednn_has_bfloat16": core.module.onednn_has_bfloat16(),
        "threads": core.module.get_num_threads(),
        "simd": core.module.simd(),
    }
    print({**bench_common.machine(), **about}, flush=True)
    if options.check:
        reference, tested = options.devices
        comparisons = check(
            core,
            (reference, tested),
            options.check_batch,
            chosen=options.only,
            quiet=options.quiet,
        )
        bench_common.save(options.json, {"about": about, "comparisons": comparisons})
        return 0 if comparisons and all(each["passed"] for each in comparisons) else 1
    bus: dict[str, float] = {}
    gpus = [device for device in options.devices if device != HOST]
    if gpus:
        bus = bus_gbs(int(gpus[0].removeprefix("cuda:")))
        print("GB/s of the bus:", {name: round(rate, 1) for name, rate in bus.items()})
        options.bus_gbs = options.bus_gbs or min(bus["pinned_to_gpu"], bus["pinned_from_gpu"])
    results = measure(core, options)
    by_host = ratios(results)
    for where, ratio in by_host.items():
        print(f"{where}: {ratio:.2f} times the samples/s of the host's cores")
    settings = {name: getattr(options, name) for name in ("rows", "zipf", "sparse", "bus_gbs")}
    bench_common.save(
        options.json,
        {"about": about, **settings, "bus": bus, "results": results, "by_host": by_host},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
