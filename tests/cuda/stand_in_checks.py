# SPDX-License-Identifier: Apache-2.0
"""Checks of layers on the stand-in GPU, beside the same layers on the CPU.

Run by `python -m tests.cuda.stand_in_checks`, where the system's loader finds the stand-in. Prints
a line a check: its name, or its name and a traceback, as JSON.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.train import Callback

from mindspore_rec import LazyAdam, RecModel, _native, get_dense_device, set_dense_device, tables_of
from mindspore_rec.checkpoint import load_checkpoint, save_checkpoint
from mindspore_rec.command.doctor.libraries import gpu
from mindspore_rec.command.doctor.line import Asked
from mindspore_rec.models import DCN, DLRM, CrossMixture, DCNv2, DeepFM
from mindspore_rec.nn import MLP, CrossNet, MMoE, PeriodicEmbedding, PiecewiseLinear
from mindspore_rec.train import placement_report
from mindspore_rec.train.graph.lock import graph_lock
from models.common.embedding_config import EmbeddingConfig
from models.common.features import PackedFeatures
from tests.nn.fused_cells import close, rows_of, run

GPU = "cuda:0"
KERNEL = re.compile(r"^MSREC_KERNEL\(\s*(\w+)\s*,", re.MULTILINE)
FIELDS, NUMBERS = 3, 2
SIZES = (40, 33, 1, 64, 40)  # of a training's batches
FEATURES = PackedFeatures(FIELDS, NUMBERS, EmbeddingConfig(embedding_dim=4, std=0.1))

NETWORKS: dict[str, Callable[[], nn.Cell]] = {
    "deepfm": lambda: DeepFM(FEATURES, hidden=(8, 6), dropout=0.2, batch_norm=True),
    "dcn": lambda: DCN(FEATURES, hidden=(7,), dropout=0.3),
    "dcn_v2": lambda: DCNv2(FEATURES, cross=CrossMixture(3, 2), hidden=(7,)),
    "dlrm": lambda: DLRM(FEATURES, bottom=(6, 4), top=(9, 5), batch_norm=True),
}


class Towers(nn.Cell):
    """A mixture of experts, and two MLPs that one step calls twice."""

    def __init__(self) -> None:
        super().__init__()
        self.before = MLP(NUMBERS, (5,), "leakyrelu", 0.2)
        self.mixture = MMoE((5, 5), 3, (6, 4), 2, "tanh", dropout=0.1)
        self.tower = MLP(4, (3,), "gelu", out_features=1)

    def construct(self, ids: Tensor, numbers: Tensor) -> Tensor:
        first, second = self.mixture(self.before(numbers), self.before(-numbers))
        return self.tower(first) - self.tower(second)


NETWORKS["towers"] = Towers


@contextmanager
def layers_on(device: str) -> Iterator[None]:
    """Layers that are made in the block are on a device."""
    before = get_dense_device()
    set_dense_device(device)
    try:
        yield
    finally:
        set_dense_device(before)


@contextmanager
def memory_of(megabytes: int) -> Iterator[None]:
    """The GPU has so much memory in the block."""
    os.environ["STAND_IN_MEMORY_MB"] = str(megabytes)
    try:
        yield
    finally:
        del os.environ["STAND_IN_MEMORY_MB"]


@contextmanager
def raises(kind: Any, message: str) -> Iterator[None]:
    """The block raises such an error."""
    try:
        yield
    except kind as error:
        assert re.search(message, f"{type(error).__name__} {error}"), repr(error)
    else:
        raise AssertionError(f"nothing was raised, expected {message}")


@functools.cache
def library() -> Any:
    """The stand-in, of which the same file is loaded already."""
    found = ctypes.CDLL("libcuda.so.1")
    found.StandInLaunches.restype = found.StandInAllocated.restype = ctypes.c_int64
    return found


def allocated() -> int:
    return int(library().StandInAllocated())


def launches(kernel: str = "") -> int:
    return int(library().StandInLaunches(kernel.encode()))


def batches_of(sizes: tuple[int, ...], seed: int) -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(seed)
    found: list[tuple[np.ndarray, ...]] = []
    for size in sizes:
        ids = rng.integers(0, 30, (size, FIELDS)) + 1000 * np.arange(FIELDS)
        numbers = rng.standard_normal((size, NUMBERS)).astype(np.float32)
        label = ((ids[:, :1] % 2 == 0) == (numbers[:, :1] > 0)).astype(np.float32)
        found.append((ids, numbers, label))
    return found


class Losses(Callback):
    """The loss of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        self.found.append(float(run_context.original_args().net_outputs.asnumpy()))


class Training:
    """A network of the zoo that is trained on a device."""

    def __init__(self, name: str, device: str, compute_dtype: str = "float32") -> None:
        ms.set_seed(7)
        level = "O2" if compute_dtype == "bfloat16" else "O0"
        with layers_on(device):
            self.net = NETWORKS[name]()
            optimizer = LazyAdam(self.net.trainable_params(), learning_rate=0.01)
            loss = nn.BCEWithLogitsLoss()
            self.model = RecModel(self.net, loss, optimizer, amp_level=level)
        self.losses = Losses()

    def train(self, sizes: tuple[int, ...] = SIZES, seed: int = 1) -> Training:
        callbacks = [self.losses]
        self.model.train(1, batches_of(sizes, seed), callbacks, progress=False)
        return self

    def predictions(self) -> list[np.ndarray]:
        return [
            self.model.predict(Tensor(ids), Tensor(numbers)).asnumpy()
            for ids, numbers, _ in batches_of((40, 1), 5)
        ]

    def dense(self) -> dict[str, np.ndarray]:
        """Parameters and moving statistics of the layers, and the optimizer's parameters."""
        return {
            p.name: p.asnumpy()
            for p in self.model.train_network.get_parameters()
            if p.dtype == ms.float32 and not p.name.endswith(".anchor")  # of a table
        }

    def results(self) -> list[np.ndarray]:
        return [np.array(self.losses.found), *self.predictions(), *self.dense().values()]

    def close(self) -> None:
        """Close the tables: another training has tables of the same names, and so values."""
        for table in tables_of(self.net):
            table.close()


@functools.cache
def trained(
    name: str, device: str, compute_dtype: str = "float32", mode: int = ms.PYNATIVE_MODE
) -> list[np.ndarray]:
    """Losses, predictions and weights of a training with predictions between."""
    ms.set_context(mode=mode)
    try:
        return trained_again(name, device, compute_dtype)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def trained_again(name: str, device: str, compute_dtype: str = "float32") -> list[np.ndarray]:
    training = Training(name, device, compute_dtype).train()
    training.predictions()
    training.train(SIZES[:2], 2)
    results = training.results()
    training.close()
    return results


def near(got: list[np.ndarray], expected: list[np.ndarray], bound: float) -> None:
    assert len(got) == len(expected) > 5
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=bound, atol=bound)


# ---------------------------------------------------------------- checks, in this order


def check_a_gpu_without_memory() -> None:
    with (
        memory_of(1),
        raises(
            RuntimeError,
            "device 'cuda:0' cannot be used: cuda:0 has no memory left for another 32 MiB",
        ),
    ):
        set_dense_device(GPU)
    assert get_dense_device() == "cpu"


def check_another_gpu_is_not_there() -> None:
    with raises(RuntimeError, "there is no cuda:1: this process sees 1 GPU of NVIDIA"):
        set_dense_device("cuda:1")
    assert get_dense_device() == "cpu"


def check_the_device_is_the_stand_in() -> None:
    with layers_on(GPU):
        assert get_dense_device() == GPU
        net = MLP(4, (3,))
    assert get_dense_device() == "cpu"
    (row,) = placement_report(net).rows
    expected = "stand-in GPU, cuBLASLt 13.0, NVRTC 13.0, driver of CUDA 13.0"
    assert row.place == f"{GPU} ({expected})", row


def check_the_doctor_finds_the_stand_in() -> None:
    with layers_on("cpu"):
        line = gpu(Asked())
        assert get_dense_device() == GPU
    assert line.state == "off" and "works, and is not used" in line.meaning, line
    assert line.remedy == "Set MINDSPORE_REC_DENSE_DEVICE=cuda:0 in the environment to use it."


def check_training(name: str) -> None:
    before = launches()
    expected = trained(name, "cpu")
    assert launches() == before
    got = trained(name, GPU)
    assert launches() > before + 10 * len(SIZES)
    near(got, expected, 1e-4)


def check_training_in_a_graph() -> None:
    near(trained("dcn", GPU, mode=ms.GRAPH_MODE), trained("dcn", "cpu"), 1e-4)


def check_training_in_bfloat16() -> None:
    before = launches("RoundBfloat16")
    got = trained("towers", GPU, "bfloat16")
    assert launches("RoundBfloat16") > before
    near(got, trained("towers", "cpu", "bfloat16"), 2e-2)


def check_two_trainings_have_the_same_bits() -> None:
    for one, other in zip(trained("deepfm", GPU), trained_again("deepfm", GPU), strict=True):
        np.testing.assert_array_equal(one, other)


def check_a_checkpoint_goes_on_on_the_cpu() -> None:
    first = Training("deepfm", GPU).train()
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(first.model, Path(folder, "saved"))
        saved = first.predictions()
        first.losses.found.clear()
        expected = first.train(SIZES[:5], 2).results()
        first.close()
        second = Training("deepfm", "cpu")
        load_checkpoint(second.model, Path(folder, "saved"))
    for one, other in zip(second.predictions(), saved, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    near(second.train(SIZES[:5], 2).results(), expected, 1e-4)
    second.close()


def pair_of(make: Callable[[], nn.Cell]) -> list[nn.Cell]:
    """The same layer on the CPU and on the GPU."""
    found = []
    for device in ("cpu", GPU):
        ms.set_seed(3)
        with layers_on(device):
            found.append(make().set_train())
    return found


def near_on_both(cells: list[nn.Cell], *inputs: np.ndarray, bound: float = 1e-5) -> None:
    """Check outputs and gradients of both cells for the same inputs."""
    weights = [rows_of(len(inputs[0]), cells[0].out_features, seed=9)]
    expected, got = (run(cell, list(inputs), weights) for cell in cells)
    close(got[0], expected[0], bound)
    close(got[1], expected[1], bound)


def check_rows_of_many_pinned_pieces() -> None:
    near_on_both(pair_of(lambda: MLP(512, (2,), "tanh")), rows_of(9001, 512))


class Narrow(nn.Cell):
    """A layer that is given its input in bfloat16."""

    def __init__(self, layer: nn.Cell) -> None:
        super().__init__()
        self.layer = layer
        self.out_features = layer.out_features

    def construct(self, x: Tensor) -> Tensor:
        return self.layer(ops.cast(x, ms.bfloat16))


def check_bfloat16_inputs() -> None:
    makers: list[Callable[[], nn.Cell]] = [
        lambda: Narrow(MLP(6, (5, 4), "relu", compute_dtype="bfloat16")),
        lambda: Narrow(MLP(6, (5, 4), "relu")),
        lambda: Narrow(CrossNet(6, 2, compute_dtype="bfloat16")),
    ]
    for make in makers:
        near_on_both(pair_of(make), rows_of(40, 6), bound=2e-2)


class Flat(nn.Cell):
    """A layer that makes vectors of numbers, side by side."""

    def __init__(self, layer: nn.Cell) -> None:
        super().__init__()
        self.layer = layer
        self.out_features = layer.out_features

    def construct(self, x: Tensor) -> Tensor:
        return self.layer(x).reshape((-1, self.out_features))


def check_vectors_of_numbers() -> None:
    makers: list[Callable[[], nn.Cell]] = [
        lambda: Flat(PiecewiseLinear(3, 5, 4, std=0.5)),
        lambda: Flat(PeriodicEmbedding(3, 5, 4)),
    ]
    for make in makers:
        near_on_both(pair_of(make), rows_of(300, 3))


def check_gradients_in_evaluation() -> None:
    cells = pair_of(lambda: MLP(6, (5, 4), "relu", 0.1, batch_norm=True))
    near_on_both(cells, rows_of(40, 6))
    near_on_both([cell.set_train(False) for cell in cells], rows_of(40, 6))


def check_an_empty_batch() -> None:
    near_on_both(pair_of(lambda: MLP(3, (2,), batch_norm=False)), rows_of(0, 3))


def check_forward_passes_whose_gradients_nobody_asks_for() -> None:
    cells = pair_of(lambda: MLP(6, (5,), "relu"))
    for seed in range(20):
        x = Tensor(rows_of(9, 6, seed=seed))
        close([cells[1](x).asnumpy()], [cells[0](x).asnumpy()])
    near_on_both(cells, rows_of(9, 6))


class Repeated(nn.Cell):
    """The sum of a layer's outputs for so many inputs."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.layer = MLP(6, (5,), "tanh")
        self.times = times
        self.out_features = 5

    def construct(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        for k in range(1, self.times):
            y = y + self.layer(x * (k + 1.0))
        return y


def check_a_layer_that_a_step_calls_often() -> None:
    near_on_both(pair_of(lambda: Repeated(20)), rows_of(9, 6))
    near_on_both(pair_of(lambda: Repeated(2)), rows_of(9, 6))


def check_networks_that_are_gone_give_their_memory_back() -> None:
    held = []
    for _ in range(4):
        near_on_both(pair_of(lambda: MLP(100, (200,), "relu")), rows_of(2000, 100))
        gc.collect()
        held.append(allocated())
    assert held[-1] <= held[1], held


def check_several_threads() -> None:
    cell = pair_of(lambda: MLP(6, (5, 4), "relu"))[1].set_train(False)
    x = Tensor(rows_of(50, 6))
    expected = cell(x).asnumpy()

    def called(_: int) -> np.ndarray:
        with graph_lock:  # MindSpore, its own layers too, mixes up calls at the same time
            return cell(x).asnumpy()

    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(called, range(12)):
            np.testing.assert_array_equal(found, expected)


def check_a_batch_that_has_no_memory() -> None:
    cells = pair_of(lambda: MLP(100, (8,), "relu"))
    near_on_both(cells, rows_of(30, 100))
    with memory_of(40), raises(RuntimeError, "cuda:0 has no memory left for another [0-9]+ MiB"):
        near_on_both(cells, rows_of(40_000, 100))
    near_on_both(cells, rows_of(50, 100))
    near_on_both(cells, rows_of(30_000, 100))


def check_every_kernel_has_run() -> None:
    sources = _native.cuda_kernel_sources()
    kernels = {name for text in sources.values() for name in KERNEL.findall(text)}
    idle = sorted(name for name in kernels if not launches(name))
    assert kernels and not idle, idle


def check_nothing_wrote_past_its_memory() -> None:
    library().StandInCheck()


def checks() -> dict[str, Callable[[], None]]:
    found: dict[str, Callable[[], None]] = {}
    for name, function in list(globals().items()):
        if name == "check_training":
            for network in NETWORKS:
                found[f"training_{network}"] = functools.partial(function, network)
        elif name.startswith("check_"):
            found[name.removeprefix("check_")] = function
    return found


if __name__ == "__main__":
    sys.modules["nvidia"] = None  # type: ignore[assignment]  # wheels come before the stand-in
    warnings.simplefilter("ignore", RuntimeWarning)  # PyNative is slow; compiling takes longer here
    for name, check in checks().items():
        reason = ""
        try:
            check()
        except Exception:
            reason = traceback.format_exc()
        print(json.dumps([name, reason]), flush=True)
