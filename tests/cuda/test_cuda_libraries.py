# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's libraries are found in wheels, then in the system; kernels are kept in a folder."""

from __future__ import annotations

import ctypes
import importlib
import sys
from pathlib import Path

import pytest

from mindspore_rec.train.nn.fused import cuda_libraries
from mindspore_rec.train.nn.fused.cuda_libraries import find_cuda_libraries, kernel_cache
from tests.support.processes import ROOT, run_python

NEW = ("cu13/lib/libnvrtc.so.13", "cu13/lib/libcublasLt.so.13")
OLD = ("cuda_nvrtc/lib/libnvrtc.so.12", "cublas/lib/libcublasLt.so.12")


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Let Python and the system have these libraries of NVIDIA only."""

    def have(*wheels: str, system: tuple[str, ...] = (), folder: str = "first") -> Path:
        for each in wheels:
            file = tmp_path / folder / "nvidia" / each
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

        def opened(name: str) -> None:
            if name not in system:
                raise OSError(name)

        monkeypatch.setattr(ctypes, "CDLL", opened)
        monkeypatch.delitem(sys.modules, "nvidia", raising=False)
        kept = [each for each in sys.path if not (Path(each) / "nvidia").is_dir()]
        monkeypatch.setattr(sys, "path", [*map(str, sorted(tmp_path.iterdir())), *kept])
        importlib.invalidate_caches()
        return tmp_path / folder / "nvidia"

    return have


@pytest.mark.parametrize("files", [NEW, OLD])
def test_wheels_of_one_version(only, files) -> None:
    nvidia = only(*files)
    assert list(find_cuda_libraries().values()) == [str(nvidia / each) for each in files]


def test_the_newest_of_both_versions(only) -> None:
    nvidia = only(*OLD, *NEW)
    assert list(find_cuda_libraries().values()) == [str(nvidia / each) for each in NEW]


def test_a_version_that_is_whole_before_a_newer_one_that_is_not(only) -> None:
    nvidia = only(*OLD, NEW[0])
    assert list(find_cuda_libraries().values()) == [str(nvidia / each) for each in OLD]


def test_wheels_in_two_folders(only) -> None:
    only(NEW[0])
    second = only(NEW[1], folder="second")
    assert find_cuda_libraries()["cublasLt"] == str(second / NEW[1])
    assert find_cuda_libraries()["nvrtc"].endswith(f"first/nvidia/{NEW[0]}")


def test_the_system_after_the_wheels(only) -> None:
    only(system=("libnvrtc.so.12", "libcublasLt.so.12", "libnvrtc.so.13"))
    assert find_cuda_libraries() == {"nvrtc": "libnvrtc.so.12", "cublasLt": "libcublasLt.so.12"}
    nvidia = only(NEW[0], system=("libcublasLt.so.13",))
    assert find_cuda_libraries() == {"nvrtc": str(nvidia / NEW[0]), "cublasLt": "libcublasLt.so.13"}


def test_nothing_anywhere(only) -> None:
    (only(NEW[0]) / NEW[0]).unlink()
    assert find_cuda_libraries() == {"nvrtc": "libnvrtc.so.13", "cublasLt": "libcublasLt.so.13"}


def test_the_folder_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert kernel_cache() == "/cache/mindspore_rec/kernels"
    for given in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert kernel_cache() == "/home/somebody/.cache/mindspore_rec/kernels"
    monkeypatch.setenv("HOME", "nowhere")
    assert kernel_cache() == ""


def test_the_module_runs_alone() -> None:
    path = Path(cuda_libraries.__file__)
    printed = run_python(
        "-I",
        "-c",
        f"import runpy, sys; names = runpy.run_path({str(path)!r})\n"
        "print(len(names['find_cuda_libraries']()), 'mindspore_rec' in sys.modules)",
        cwd=ROOT,
    )
    assert printed.split() == ["2", "False"]
