# SPDX-License-Identifier: Apache-2.0
"""NVIDIA Triton Inference Server as a peer of our server: the same rows, network and requests.

Triton's binaries come from the package `nvidia-pytriton`, which has only Triton's Python backend.
In Triton's Python backend, `peers/triton_model.py` looks the rows up and runs the dense part with
ONNX Runtime.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import bench_common
import numpy as np
from pyarrow import feather

_CONFIG = """
name: "model"
backend: "python"
max_batch_size: 0
input [ {{ name: "ids" data_type: TYPE_INT64 dims: [ -1, {fields} ] }},
        {{ name: "numbers" data_type: TYPE_FP32 dims: [ -1, {numbers} ] }} ]
output [ {{ name: "score" data_type: TYPE_FP32 dims: [ -1, 1 ] }} ]
instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
parameters {{ key: "directory" value: {{ string_value: "{directory}" }} }}
parameters {{ key: "rows_input" value: {{ string_value: "{rows_input}" }} }}
"""
_START_SECONDS = 120


def write_model(root: Path, directory: Path) -> str:
    """Write a run's rows and network for Triton; return the name of the input for rows."""
    directory.mkdir(parents=True)
    rows = directory / "rows.arrow"
    subprocess.run(
        [sys.executable, "-m", "mindspore_rec.checkpoint", "export", root, "--to", rows],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    table = feather.read_table(rows)
    keys = table["key"].to_numpy()
    values = np.stack(table["value"].to_numpy())
    order = np.argsort(keys)
    np.save(directory / "keys.npy", keys[order])
    np.save(directory / "rows.npy", values[order])
    shutil.copy(root / "network" / "network.onnx", directory / "network.onnx")
    (lookup,) = json.loads((root / "network" / "network.json").read_text())["lookups"]
    return str(lookup["result"])


def _repository(python: Path, directory: Path, config: str) -> tuple[Path, dict[str, str]]:
    """Write models and backends in Triton's layout; return Triton's program and environment."""
    words = subprocess.run(
        [python, "-c", "import sys, pytriton; print(pytriton.__path__[0], *sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    package, version = Path(words[0]), ".".join(words[1:])
    binaries = package / "tritonserver"
    backend = directory / "backends" / "python"
    shutil.copytree(binaries / "backends" / "python", backend)
    stub = binaries / "python_backend_stubs" / version / "triton_python_backend_stub"
    shutil.copy(stub, backend)
    model = directory / "models" / "model"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(config)
    shutil.copy(bench_common.BENCHMARKS / "peers" / "triton_model.py", model / "1" / "model.py")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(package.parent / "nvidia_pytriton.libs"),
        "PYTHONPATH": str(package.parent),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }
    return binaries / "bin" / "tritonserver", environment


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_triton(
    python: Path, root: Path, directory: Path, fields: int, numbers: int, instances: int = 2
) -> tuple[subprocess.Popen[bytes], tuple[int, int]]:
    """Start Triton, which serves the newest state of a run.

    Args:
        python: an interpreter whose environment has nvidia-pytriton and onnxruntime.
        root: the run.
        directory: folder to make for Triton's files; the folder must not exist yet.
        fields: number of ids per sample.
        numbers: number of numeric features per sample.
        instances: number of processes of the model.

    Returns:
        The process, which is ready, and its HTTP and gRPC ports.

    Raises:
        RuntimeError: Triton ended, or was not ready in time.
    """
    rows_input = write_model(root, directory)
    config = _CONFIG.format(
        fields=fields, numbers=numbers, instances=instances, directory=directory,
        rows_input=rows_input,
    )  # fmt: skip
    program, environment = _repository(python, directory, config)
    http_port, grpc_port = _free_ports(2)
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                program, "--model-repository", directory / "models", "--backend-directory",
                directory / "backends", "--http-address", "127.0.0.1", "--grpc-address",
                "127.0.0.1", "--http-port", str(http_port), "--grpc-port", str(grpc_port),
                "--allow-metrics", "false",
            ],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError):
            url = f"http://127.0.0.1:{http_port}/v2/models/model/ready"
            with urllib.request.urlopen(url, timeout=1) as answer:
                if answer.status == 200:
                    return server, (http_port, grpc_port)
        time.sleep(0.2)
    server.kill()
    server.wait()
    raise RuntimeError(f"Triton did not start:\n{(directory / 'log').read_text()[-3000:]}")
