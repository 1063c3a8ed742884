# SPDX-License-Identifier: Apache-2.0
"""Without oneDNN the dense layers are MindSpore's own, and compute the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore import Tensor

import mindspore_rec.train.nn.fused.layer as fused_layer
from mindspore_rec.nn import MLP
from tests.support.missing import missing
from tests.support.networks import Gradients
from tests.support.nightly import nightly

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys, warnings
import numpy as np
import mindspore as ms
from mindspore import Tensor
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from mindspore_rec.nn import MLP
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_seed(3)
    nets = [MLP((3, 2), (5,), out_features=1, compute_dtype=t) for t in ("float32", "bfloat16")]
x = [Tensor(np.arange(4 * w, dtype=np.float32).reshape(4, w) / 7) for w in (3, 2)]
found = [net.set_train()(*x).asnumpy().ravel().tolist() for net in nets]
words = [str(each.message) for each in caught if "oneDNN" in str(each.message)]
print(json.dumps({"fused": [net.is_fused for net in nets], "out": found, "words": words}))
"""


def run(library: str | None, cwd: Path) -> dict[str, Any]:
    """Run `PROGRAM` with that path as oneDNN's library, and return what it prints."""
    given = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
    given.pop("MINDSPORE_REC_ONEDNN", None)
    if library is not None:
        given["MINDSPORE_REC_ONEDNN"] = library
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=given, cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def compiled(source: str, place: Path) -> str:
    """The path of a shared library of C source text."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        missing("compiler", "a C compiler; apt-get install gcc")
    (place / "small.c").write_text(source)
    path = place / "libsmall.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(path), str(place / "small.c")]
    subprocess.run(command, check=True)
    return str(path)


VERSION = """
struct version { int major, minor, patch; const char* hash; unsigned cpu, gpu; };
const struct version* dnnl_version(void) {
  static const struct version is = {MAJOR, MINOR, 0, "", RUNTIME, 0};
  return &is;
}
"""


def version(major: int, minor: int, runtime: int = 8) -> str:
    text = VERSION.replace("MAJOR", str(major)).replace("MINOR", str(minor))
    return text.replace("RUNTIME", str(runtime))


def of_all_functions() -> str:
    """A library that has every function; all but the version fail."""
    header = (ROOT / "mindspore_rec/csrc/dense/onednn_api.h").read_text().split("#define")[1]
    names = [line.split(",")[1].strip() for line in header.splitlines() if line.startswith("  F(")]
    failing = [f"int dnnl_{name}(void) {{ return 2; }}" for name in names if name != "version"]
    more = "int dnnl_threadpool_interop_set_max_concurrency(int n) { return 2; }"
    return "\n".join([version(3, 10), *failing, more])


BROKEN = {
    "missing": (None, "no such file|cannot open"),
    "text": ("", "invalid ELF header|file too short"),
    "other": ("int f(void) { return 1; }", "has no function dnnl_version"),
    "old": (version(2, 7), "is oneDNN 2.7.0, and not 3.4 or a later 3"),
    "older minor": (version(3, 3), "is oneDNN 3.3.0, and not 3.4"),
    "new major": (version(4, 0), "is oneDNN 4.0.0"),
    "cut": (version(3, 10), "has no function dnnl_get_effective_cpu_isa"),
    "failing": (of_all_functions(), "dnnl_engine_create failed"),
}


@pytest.fixture(scope="module")
def fused(tmp_path_factory) -> dict[str, Any]:
    return run(None, tmp_path_factory.mktemp("fused"))


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "older minor",
        "new major",
        "cut",
        "failing",
        *nightly("text", "other", "old"),
    ],
)
def test_a_library_that_cannot_be_used_is_one_warning(kind, fused, tmp_path):
    source, words = BROKEN[kind]
    if kind == "missing":
        path = str(tmp_path / "nothing.so")
    elif kind == "text":
        path = str(tmp_path / "text.so")
        Path(path).write_text("this is no library\n" * 100)
    else:
        assert source is not None
        path = compiled(source, tmp_path)
    found = run(path, tmp_path)
    assert fused["fused"] == [True, True] and fused["words"] == []
    assert found["fused"] == [False, False]
    (warning,) = found["words"]
    assert "dense layers are MindSpore's own" in warning and "MINDSPORE_REC_ONEDNN" in warning
    assert path in warning
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(warning)
    np.testing.assert_allclose(found["out"], fused["out"], rtol=1e-5, atol=1e-6)


def test_off_is_no_warning(fused, tmp_path):
    found = run("off", tmp_path)
    assert found["fused"] == [False, False] and found["words"] == []
    np.testing.assert_allclose(found["out"], fused["out"], rtol=1e-5, atol=1e-6)


def grid(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Multiples of 1/16, of 10 bits: sums of their products are exact, they are no bfloat16s."""
    return random.integers(-512, 513, shape).astype(np.float32) / 16


def values_of(net: MLP, inputs: list[np.ndarray], dout: np.ndarray, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    for parameter in net.trainable_params():
        parameter.set_data(Tensor(grid(random, parameter.shape)))
    given = [Tensor(x) for x in inputs]
    net.set_train()
    out = net(*given).asnumpy()
    of_inputs, of_weights = Gradients(net)(*given, Tensor(dout))
    return [out, *(g.asnumpy() for g in (*of_inputs, *of_weights))]


@given(
    batch=st.sampled_from([1, 2, 7, 33]),
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    units=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_bfloat16_without_onednn_rounds_the_same_factors(batch, widths, units, seed):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    both = pair(widths, (), units)
    random = np.random.default_rng(seed)
    inputs = [grid(random, (batch, w)) for w in widths]
    dout = grid(random, (batch, units))
    fused, plain = (values_of(net, inputs, dout, seed) for net in both)
    for one, other in zip(fused, plain, strict=True):
        np.testing.assert_array_equal(one, other)  # exact sums of the same rounded factors


def pair(widths: list[int], hidden: tuple[int, ...], units: int) -> tuple[MLP, MLP]:
    """The same perceptron, fused and of MindSpore's layers."""
    fused = MLP(widths, hidden, out_features=units, compute_dtype="bfloat16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_layer, "has_onednn", lambda: False)
        plain = MLP(widths, hidden, out_features=units, compute_dtype="bfloat16")
    assert fused.is_fused and not plain.is_fused
    return fused, plain


@pytest.mark.parametrize("joined", [False, True])
def test_hidden_layers_without_onednn_round_the_same_factors(mode, joined):
    widths = [8] if joined else [5, 3]
    random = np.random.default_rng(2)
    inputs, dout = [grid(random, (33, w)) for w in widths], grid(random, (33, 2))
    fused, plain = (values_of(net, inputs, dout, 1) for net in pair(widths, (6, 4), 2))
    for one, other in zip(fused, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(one).max())
    single = MLP(widths, (6, 4), out_features=2)
    differ = np.abs(values_of(single, inputs, dout, 1)[0] - plain[0]).max()
    assert differ > 1e-4 * np.abs(plain[0]).max()  # it does round


def test_another_type_can_be_set_before_compiling(mode):
    random = np.random.default_rng(5)
    x = [grid(random, (4, 6))]
    made = MLP(6, (), out_features=3, compute_dtype="bfloat16")
    later = MLP(6, (), out_features=3).set_compute_dtype("bfloat16")
    dout = grid(random, (4, 3))
    for one, other in zip(values_of(made, x, dout, 1), values_of(later, x, dout, 1), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="compute_dtype must be one of 'float32', 'bfloat16'"):
        made.set_compute_dtype("float16")


def test_layers_in_float16_are_of_mindspore(mode):
    net = MLP(4, (3,))
    before = net.is_fused
    net.layers[0].to_float(ms.float16)
    assert before and not net.is_fused
    assert net(Tensor(np.ones((2, 4), np.float32))).dtype == ms.float16


def test_not_a_number_and_infinity_pass(mode):
    fused, plain = pair([3], (), 2)
    x = np.array([[np.nan, 1, 1], [np.inf, 1, 1], [3.4e38, 1, 1], [1, 1, 1]], np.float32)
    for net in (fused, plain):
        net.layers[0].weight.set_data(Tensor(np.ones((2, 3), np.float32)))
    np.testing.assert_array_equal(fused(Tensor(x)).asnumpy(), plain(Tensor(x)).asnumpy())
