# SPDX-License-Identifier: Apache-2.0
"""Chooses the device of dense programs: the CPU or a GPU."""

from __future__ import annotations

import os
import re
import threading

from mindspore_rec import _native
from mindspore_rec.common.extras import pip_install
from mindspore_rec.common.parallel.launcher import launched
from mindspore_rec.train.nn.fused.cuda_libraries import find_cuda_libraries, kernel_cache
from mindspore_rec.train.nn.fused.library import VARIABLE as ONEDNN, has_onednn

__all__ = [
    "VARIABLE",
    "check_dense_device",
    "describe",
    "get_dense_device",
    "read_environment",
    "set_dense_device",
]

VARIABLE = "MINDSPORE_REC_DENSE_DEVICE"
"""Environment variable with the device, unless a program sets one."""

_LEGAL = re.compile(r"cpu|cuda:(0|[1-9][0-9]{0,8})")


class _State:
    """Choice of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.chosen = False  # by a program or by the environment, which is not read any more
        self.descriptions: dict[str, str] = {}  # of the GPUs that were opened


_state = _State()


def set_dense_device(device: str) -> None:
    """Set the device of dense layers that are constructed after this call.

    Call this function before the network is made: a layer stores the device when its constructor
    runs (`MLP(...)`, `CrossNet(...)`, `FusedGraph(...)`). Later calls of `set_dense_device` do not
    change the device of the layer or its copies. Only the layer's method `set_compute_dtype` makes
    new operators; the method uses the device that is set at the time of the call. Only layers that
    run as one operator (`is_fused`) use the GPU. Tables, parameters, optimizers, losses and layers
    of MindSpore stay on the CPU.

    The initial device is the value of the environment variable `MINDSPORE_REC_DENSE_DEVICE`, or
    'cpu' if the variable is not set. `MINDSPORE_REC_DENSE_DEVICE` is read when the first layer is
    constructed or `get_dense_device` is called, unless `set_dense_device` was called before.

    Args:
        device: 'cpu', or 'cuda:N' for the NVIDIA GPU number N, from 0.

    Raises:
        TypeError: `device` is not a str.
        ValueError: `device` is neither 'cpu' nor 'cuda:N'.
        RuntimeError: there is no GPU with index N, the GPU's compute capability is below 8.0, or
            the driver or a library is missing. RuntimeError is also raised if
            `MINDSPORE_REC_ONEDNN=off` turns the layers' operators off in this process, or if the
            process is one of several workers. After a RuntimeError, the device is unchanged.
        WorkerError: the process was started by an unknown launcher.

    Example:
        >>> import mindspore_rec
        >>> mindspore_rec.set_dense_device("cpu")
        >>> mindspore_rec.get_dense_device()
        'cpu'
        >>> mindspore_rec.set_dense_device("gpu")
        Traceback (most recent call last):
        ...
        ValueError: device must be 'cpu' or 'cuda:N', such as 'cuda:0', got 'gpu'
    """
    check_dense_device("device", device)
    with _state.lock:
        _use(device, f"device {device!r}")
        _state.chosen = True


def get_dense_device() -> str:
    """Return the device of dense layers that are constructed after this call: 'cpu', or 'cuda:N'.

    Raises:
        ValueError: the environment variable `MINDSPORE_REC_DENSE_DEVICE` has an illegal value.
        RuntimeError: the variable names a GPU that cannot be used; see `set_dense_device`.
        WorkerError: the variable names a GPU, and the process was started by an unknown launcher.
    """
    read_environment()
    return _native.dense_device()


def check_dense_device(name: str, device: object) -> str:
    """Check and return the name of a device; the device itself need not exist.

    Args:
        name: name of the argument or variable, for the error message.
        device: the device.

    Raises:
        TypeError: `device` is not a str.
        ValueError: `device` is neither 'cpu' nor 'cuda:N'.

    Example:
        >>> check_dense_device("device", "cuda:1")
        'cuda:1'
    """
    if not isinstance(device, str):
        raise TypeError(
            f"{name} must be a str, 'cpu' or 'cuda:N', such as 'cuda:0', got {device!r}"
        )
    if not _LEGAL.fullmatch(device):
        raise ValueError(f"{name} must be 'cpu' or 'cuda:N', such as 'cuda:0', got {device!r}")
    return device


def read_environment() -> None:
    """Set the device that the environment variable names, if no device was chosen before.

    Raises:
        ValueError: `MINDSPORE_REC_DENSE_DEVICE` is neither 'cpu' nor 'cuda:N'.
        RuntimeError: the variable names a GPU that cannot be used.
    """
    with _state.lock:
        if _state.chosen:
            return
        device_name = os.environ.get(VARIABLE, "")
        if device_name:
            check_dense_device(VARIABLE, device_name)
            _use(device_name, f"{VARIABLE}={device_name}")
        _state.chosen = True


def describe(device: str) -> str:
    """Return a device's name and model, such as 'cuda:0 (NVIDIA H100 80GB HBM3, ...)'.

    Example:
        >>> describe("cpu")
        'cpu'
    """
    description = _state.descriptions.get(device, "")
    return f"{device} ({description})" if description else device


def _use(device: str, what: str) -> None:
    """Set the device of new programs; `what` is the setting's name in error messages."""
    if device == _native.dense_device():
        return
    if device == "cpu":
        _native.close_dense_device()
        return
    job = launched(os.environ, os.getpid())
    if job is not None:
        raise RuntimeError(
            f"{what} cannot be used by one of several workers: dense layers of a job of workers "
            "run on the CPU, so use 'cpu', or train in one process"
        )
    if not has_onednn():
        reason = (
            f"{ONEDNN}=off asks for MindSpore's own layers, so remove that variable"
            if os.environ.get(ONEDNN) == "off"
            else "oneDNN, which the others need, cannot be used (a RuntimeWarning says why)"
        )
        raise RuntimeError(
            f"{what} cannot be used: on a GPU are dense layers that run as operators, and "
            f"{reason}, or use 'cpu'"
        )
    ordinal = int(device.removeprefix("cuda:"))
    try:
        _native.open_cuda(ordinal, find_cuda_libraries(), kernel_cache())
    except (RuntimeError, MemoryError) as error:
        raise RuntimeError(
            f"{what} cannot be used: {error}. It takes a GPU of compute capability 8.0 or more, "
            f"NVIDIA's driver, and the libraries of: {pip_install('cuda')}"
        ) from None
    _state.descriptions[device] = _native.dense_device_description()
