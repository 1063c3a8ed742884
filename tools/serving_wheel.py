# SPDX-License-Identifier: Apache-2.0
"""Make the wheel `mindspore_rec_serving` from the wheel `mindspore_rec`.

The small wheel contains unchanged copies of the folders `common` (without the YAML readers) and
`serve`, the command `doctor`, the public modules except `plan` and `compat`, and the native core.
The script compiles nothing. MindSpore is not a requirement of the small wheel.

    python tools/serving_wheel.py output/mindspore_rec-*.whl
"""

from __future__ import annotations

import argparse
from pathlib import Path

from wheel.wheelfile import WheelFile

PACKAGE = "mindspore_rec"
LEFT_OUT = ("train", "compat", "plan", "csrc", "mpi_shim")
FILES_LEFT_OUT = ("common/strict.py", "common/yaml_text.py")  # YAML files, of command and plan
# The files of the folder `command` that `python -m mindspore_rec doctor` needs.
COMMAND_FILES = ("__init__.py", "main.py", "options.py", "remedies.py", "json_file.py")
NAME = "mindspore_rec_serving"
REQUIRES = (
    "numpy<2,>=1.25",
    "onnxruntime>=1.18",
    "orjson>=3.10",
    "pandas>=2.1",
    "pyarrow<22,>=15",
    "safetensors>=0.4",
    "starlette>=0.41",
    "uvicorn>=0.32",
    "httptools>=0.6.1",
    "uvloop>=0.21",
    "prometheus_client>=0.20",
    'grpcio>=1.74; extra == "grpc"',
    'grpcio-health-checking>=1.74; extra == "grpc"',
    'grpcio-reflection>=1.74; extra == "grpc"',
    'kafka-python>=3.0.12; extra == "kafka"',
    'crc32c>=2.4; extra == "kafka"',
    'redis[hiredis]<9,>=5.1; extra == "redis"',
)


def is_for_serving(file: str) -> bool:
    """Return True if the small wheel includes `file`, a file of the full wheel.

    Example:
        >>> [is_for_serving(f"mindspore_rec/{file}") for file in ("stream.py", "train/__init__.py")]
        [True, False]
    """
    package, *folders, name = file.split("/")
    if package != PACKAGE or (folders and folders[0] in LEFT_OUT):
        return False
    if "/".join((*folders, name)) in FILES_LEFT_OUT:
        return False
    if folders == ["command"] and name not in COMMAND_FILES:
        return False
    return name.endswith((".py", ".pyi", "py.typed")) or name.startswith("_native.")


def metadata(version: str) -> str:
    """Return the wheel's METADATA."""
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {NAME}",
        f"Version: {version}",
        "Summary: Serve the models of mindspore_rec without MindSpore.",
        "License: Apache-2.0",
        "Requires-Python: >=3.10,<3.13",
        "Provides-Extra: grpc",
        "Provides-Extra: kafka",
        "Provides-Extra: redis",
        *(f"Requires-Dist: {each}" for each in REQUIRES),
    ]
    return "\n".join(lines) + "\n"


def make(source: Path) -> Path:
    """Write the small wheel beside the full wheel, and return the small wheel's path."""
    with WheelFile(source) as whole:
        version = whole.parsed_filename["ver"]
        tags = source.stem.split("-", 2)[2]
        target = source.with_name(f"{NAME}-{version}-{tags}.whl")
        info = f"{NAME}-{version}.dist-info"
        target.unlink(missing_ok=True)
        with WheelFile(target, "w") as small:
            for entry in whole.infolist():
                if is_for_serving(entry.filename):
                    small.writestr(entry, whole.read(entry))
                elif entry.filename.endswith(".dist-info/WHEEL"):
                    small.writestr(f"{info}/WHEEL", whole.read(entry))
            small.writestr(f"{info}/METADATA", metadata(version))
    return target


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make mindspore_rec_serving of mindspore_rec.")
    parser.add_argument("wheels", type=Path, nargs="+", help="such as output/mindspore_rec-*.whl")
    for each in parser.parse_args().wheels:
        print(make(each))
