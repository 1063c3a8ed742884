# SPDX-License-Identifier: Apache-2.0
"""All kernels of a GPU compile, on a machine without one."""

from __future__ import annotations

import re

import pytest

from mindspore_rec import _native
from mindspore_rec.train.nn.fused.cuda_libraries import find_cuda_libraries
from tests.cuda.nvrtc import Nvrtc
from tests.support.missing import missing

ROOT_SOURCE = "cuda/kernels.inl"
KERNEL = re.compile(r"^MSREC_KERNEL\(\s*(\w+)\s*,", re.MULTILINE)


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    path = find_cuda_libraries()["nvrtc"]
    try:
        return Nvrtc(path)
    except OSError as error:
        missing("nvrtc", f"{error}; pip install 'nvidia-cuda-nvrtc>=13,<14'")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_every_kernel_is_in_the_machine_code(nvrtc: Nvrtc, architecture: str) -> None:
    sources = _native.cuda_kernel_sources()
    kernels = {name for text in sources.values() for name in KERNEL.findall(text)}
    assert ROOT_SOURCE in sources and kernels
    code = nvrtc.cubin(f'#include "{ROOT_SOURCE}"\n', sources, architecture)
    symbols = set(code.split(b"\0"))
    assert [name for name in sorted(kernels) if name.encode() not in symbols] == []


def test_an_error_of_a_source_is_the_compilers(nvrtc: Nvrtc) -> None:
    with pytest.raises(RuntimeError, match="no_such_name"):
        nvrtc.cubin('extern "C" __global__ void f() { no_such_name(); }', {}, "sm_80")
