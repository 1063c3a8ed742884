# SPDX-License-Identifier: Apache-2.0
"""Training steps in PyTorch on a GPU: the networks and batches of gpu_step.py.

    python benchmarks/gpu_torch.py --batch 4096 16000 65536 --compiled-batch 16000 --json OUT

The script needs PyTorch with CUDA, but not the package. Tables are `nn.Embedding` in the GPU's
memory. The tables are measured twice: with sparse gradients and SparseAdam, and with dense
gradients and Adam over all rows. Measurements with pinned batches or compiled steps use only the
faster kind of gradients. Fused Adam trains the weights. In float32, matrix products are float32 (no
TF32). In bfloat16, autocast computes matrix products in bfloat16. In a result with `batches` "gpu",
all batches are on the GPU before the run. In a result with `batches` "pinned", each step copies its
batch from pinned memory to the GPU. `samples_per_s` is the median over blocks of steps; the host
waits for the GPU after each block. `samples_per_s_alone` is the median over single steps; the host
waits after each step.
"""

from __future__ import annotations

import argparse
import sys

import bench_common
from gpu.shapes import SHAPES

PRECISIONS = ("float32", "bfloat16")


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = bench_common.parser(__doc__.splitlines()[0])
    add = parser.add_argument
    add("--networks", nargs="+", choices=SHAPES, default=list(SHAPES), help="what is trained")
    add("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="of products")
    add("--batch", type=int, nargs="+", default=[4096, 16000, 65536], help="samples of a step")
    add("--compiled-batch", type=int, nargs="*", default=[16000], help="those also compiled")
    add("--rows", type=int, default=2_000_000, help="ids in a table")
    add("--zipf", type=float, default=1.1, help="exponent of the ids")
    add("--steps", type=int, default=20, help="counted steps, alone")
    add("--blocks", type=int, default=8, help="counted blocks of steps")
    add("--block", type=int, default=5, help="steps of a block")
    add("--warmup", type=int, default=5, help="steps before them")
    return parser.parse_args()


def main() -> int:
    """Run the measurements; return the exit code."""
    options = parse()
    from gpu import torch_nets

    torch_nets.prepare(options.seed)
    about = torch_nets.about()
    print({**bench_common.machine(), **about}, flush=True)
    results = []
    for name in options.networks:
        for precision in options.precision:
            for batch in options.batch:
                for figures in torch_nets.figures(SHAPES[name], precision, batch, options):
                    results.append(
                        {"network": name, "precision": precision, "batch": batch, **figures}
                    )
                    show(results[-1])
    settings = {name: getattr(options, name) for name in ("rows", "zipf")}
    bench_common.save(options.json, {"about": about, **settings, "results": results})
    return 0


def show(found: dict[str, object]) -> None:
    """Print figures."""
    texts = (f"{v:,.3f}" if isinstance(v, float) else str(v) for v in found.values())
    print("  ".join(texts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
