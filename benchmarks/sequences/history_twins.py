# SPDX-License-Identifier: Apache-2.0
"""Trains DIN, BST, SASRec, HSTU and their PyTorch twins from equal weights on equal batches, and
compares the losses.

    python -m benchmarks.sequences.history_twins --json OUT

Each network trains on the rows of `datasets/synthetic/histories.py` in float32, without dropout, at
a constant learning rate. Both twins begin with the same weights, including the rows of the tables.
Our networks use LazyAdam over hash tables. The twins use SparseAdam over `nn.Embedding`; for the
other weights, the twins use an Adam that, like SparseAdam, adds epsilon before the bias correction.
The output file has the settings, the seeds and the mean loss of each 100 steps. The script needs
PyTorch (`pip install torch`; the CPU build is enough). The exit code is 1 if a mean loss differs
from the twin's mean loss by more than 0.1 %.

A third training shows how much rounding changes the mean losses: PyTorch's twin is trained again
from weights that have each moved by about a millionth of their size. ReLU and Adam amplify
differences that come from rounding. At a learning rate of 0.001, rounding changes the mean losses
of BST's twin by up to 0.008. At the default learning rate, rounding changes the mean losses so
little that an error in a network or an optimizer would be visible.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import copy
import importlib.util
import sys
import time
from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore.train import Callback

from benchmarks import bench_common
from datasets.synthetic.histories import TASKS, draw, schema_of
from mindspore_rec import LazyAdam, RecModel, get_num_threads, models, tables_of

NETS: dict[str, dict[str, Any]] = {
    "din": {"hidden": [64, 32]},
    "bst": {"heads": 2, "hidden": [64, 32]},
    "sasrec": {"heads": 2},
    "hstu": {"heads": 2},
}
STD = 0.3  # of the initial rows; a step of Adam at 0.001 changes a usual row of 0.01 by a tenth
MOVE = 1e-6  # share of itself by which a weight of the third training is moved
LIMIT = 1e-3
WINDOW = 100

Batch = Mapping[str, np.ndarray]


class Losses(Callback):
    """A callback that stores the loss of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        """Store the loss of the step."""
        self.losses.append(float(run_context.original_args().net_outputs.asnumpy()))


def measure(name: str, task: str, options: Any) -> dict[str, Any]:
    """Train a network and its twin on the same batches."""
    from benchmarks.sequences.torch_nets import Twin

    seed, rate = options.seed, options.learning_rate
    planted = draw(task, options.steps * options.batch, seed)
    ms.set_seed(seed + 1)  # MindSpore's seeds start at 1
    net = models.get(name)(
        schema_of(times=name == "hstu"), name=f"{name}_{task}", seed=seed, **NETS[name]
    )
    optimizer = LazyAdam(net.trainable_params(), rate)
    model = RecModel(net, optimizer=optimizer)
    batches = list(model.batches(planted.rows, options.batch))
    keys, tables, weights = tables_in_order(net, batches)
    rng = np.random.default_rng(seed)
    for of, table in zip(keys, tables, strict=True):
        table.write_rows(of, rng.normal(0, STD, (len(of), table.dim)).astype(np.float32))
    twin = Twin(net, keys, tables, weights)
    moved = moved_twin(twin, seed)
    began = time.perf_counter()
    losses = Losses()
    model.train(1, [tuple(each.values()) for each in batches], losses, progress=False)
    middle = time.perf_counter()
    per_step = {"ours": np.array(losses.losses), "torch": train_twin(twin, rate, batches)}
    seconds = {"ours": middle - began, "torch": time.perf_counter() - middle}
    per_step["moved"] = train_twin(moved, rate, batches)
    for table in tables:
        table.close()
    means = {side: windows(each) for side, each in per_step.items()}
    most = {
        side: float(np.abs(means[side] / means["torch"] - 1).max()) for side in ("ours", "moved")
    }
    return {
        "settings": NETS[name],
        "most": most,
        "losses": {side: each.tolist() for side, each in means.items()},
        "seconds": seconds,
    }


def tables_in_order(
    net: Any, batches: list[Batch]
) -> tuple[list[np.ndarray], list[Any], list[Any]]:
    """Return keys, tables of vectors and tables of first-order weights, in the schema's order.

    If the network has no linear part, the list of tables of first-order weights is empty.
    """
    by_name = {each.name: each for each in tables_of(net)}
    name = net.recipe()["name"]
    keys, names = [], []
    for table in net.schema.tables:
        used = [batch["ids"][:, list(table.fields)].ravel() for batch in batches]
        for history in table.histories:
            used += [batch[f"{history}.values"] for batch in batches]
        keys.append(np.unique(np.concatenate(used)))
        names.append("" if table.name is None else f".{table.name}")
    tables = [by_name[f"{name}.embedding{each}"] for each in names]
    has_linear = len(by_name) > len(tables)
    return keys, tables, [by_name[f"{name}.linear{each}"] for each in names if has_linear]


def moved_twin(twin: Any, seed: int) -> Any:
    """Return a copy of a twin with weights changed by about a millionth of their size."""
    import torch

    moved = copy.deepcopy(twin)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in moved.parameters():
            each.mul_(1 + MOVE * torch.randn(each.shape, generator=generator))
    return moved


def train_twin(twin: Any, rate: float, batches: list[Batch]) -> np.ndarray:
    """Train the twin on the batches; return the loss of each step."""
    import torch

    from benchmarks.sequences.torch_nets import Adam

    rows = {id(each) for each in twin.rows}
    dense = [each for each in twin.parameters() if id(each) not in rows]
    optimizers = [torch.optim.SparseAdam(twin.rows, lr=rate), Adam(dense, rate)]
    losses = []
    for batch in batches:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            twin(batch), torch.from_numpy(batch["label"])
        )
        for each in optimizers:
            each.zero_grad()
        loss.backward()
        for each in optimizers:
            each.step()
        losses.append(float(loss.detach()))
    return np.array(losses)


def windows(losses: np.ndarray) -> np.ndarray:
    """Return the mean of each 100 losses, or of all losses if there are fewer than 100."""
    window = min(WINDOW, len(losses))
    whole = len(losses) // window * window
    means: np.ndarray = losses[:whole].reshape(-1, window).mean(1)
    return means


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS), help="networks")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="rows")
    parser.add_argument("--steps", type=int, default=1000, help="batches, each used once")
    parser.add_argument("--batch", type=int, default=256, help="rows of a batch")
    parser.add_argument("--learning-rate", type=float, default=0.0003, help="of Adam")
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("torch") is None:
        print("error: the twins need PyTorch: pip install torch", file=sys.stderr)
        return 2
    import torch

    torch.set_num_threads(get_num_threads())
    ms.set_context(mode=ms.GRAPH_MODE)
    results: dict[str, Any] = {}
    for name in options.nets:
        for task in options.tasks:
            results[f"{name}, {task}"] = each = measure(name, task, options)
            first, last = (each["losses"]["ours"][k] for k in (0, -1))
            print(
                f"{name} on {task}: loss {first:.4f} to {last:.4f}, the means of {WINDOW} steps "
                f"differ by at most {each['most']['ours']:.1e} of the twin's; with moved weights, "
                f"the twin's differ by {each['most']['moved']:.1e}",
                flush=True,
            )
            bench_common.save(
                options.json,
                {
                    "torch": torch.__version__,
                    "limit": LIMIT,
                    "window": WINDOW,
                    "seed": options.seed,
                    "steps": options.steps,
                    "batch": options.batch,
                    "std": STD,
                    "move": MOVE,
                    "learning_rate": options.learning_rate,
                    "twins": results,
                },
            )
    return int(any(each["most"]["ours"] > LIMIT for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
