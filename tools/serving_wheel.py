# SPDX-License-Identifier: Apache-2.0
"""Make the wheel `mindspore_rec_serving` from the wheel `mindspore_rec`.

The small wheel contains unchanged copies of the folders `common` (without the YAML readers) and
`serve`, the command `doctor`, the public modules except `plan` and `compat`, and the native core.
The script compiles nothing. MindSpore is not a requirement of the small wheel.

    python tools/serving_wheel.py output/mindspore_rec-*.whl
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from wheel.wheelfile import WheelFile

PACKAGE = "mindspore_rec"
LEFT_OUT = ("train", "compat", "plan", "csrc", "mpi_shim")
FILES_LEFT_OUT = ("common/strict.py", "common/yaml_text.py")  # YAML files, of command and plan
# The files of the folder `command` that `python -m mindspore_rec doctor` needs.
COMMAND_FILES = ("__init__.py", "main.py", "options.py", "remedies.py", "json_file.py")
NAME = "mindspore_rec_serving"
# Requirements of the full wheel that the small wheel has too: packages that both always need, an
# extra whose packages the small wheel always needs, and extras that stay extras.
CORE = ("numpy", "pandas", "pyarrow", "safetensors")
ALWAYS = "serving"
OPTIONAL = ("grpc", "kafka", "redis")


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


def requirements(full: str) -> list[str]:
    """Return the lines Requires-Dist of the small wheel, from the METADATA of the full wheel.

    Example:
        >>> full = (
        ...     "Requires-Dist: numpy<2\\nRequires-Dist: tqdm\\n"
        ...     'Requires-Dist: redis>=5; extra == "redis"\\n'
        ...     'Requires-Dist: uvicorn; extra == "serving"'
        ... )
        >>> requirements(full)[1:]
        ['Requires-Dist: redis>=5; extra == "redis"', 'Requires-Dist: uvicorn']
    """
    lines = []
    for line in full.splitlines():
        match = re.fullmatch(r"Requires-Dist: ([\w-]+)([^;]*)(?:; extra == [\"'](\w+)[\"'])?", line)
        if match is None:
            continue
        name, versions, extra = match.groups()
        if extra in OPTIONAL:
            lines.append(line)
        elif extra == ALWAYS or (extra is None and name in CORE):
            lines.append(f"Requires-Dist: {name}{versions}")
    return lines


def metadata(version: str, full: str) -> str:
    """Return the small wheel's METADATA, from its version and the METADATA of the full wheel."""
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {NAME}",
        f"Version: {version}",
        "Summary: Serve the models of mindspore_rec without MindSpore.",
        "License: Apache-2.0",
        "Requires-Python: >=3.10,<3.13",
        *(f"Provides-Extra: {extra}" for extra in OPTIONAL),
        *requirements(full),
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
                elif entry.filename.endswith(".dist-info/METADATA"):
                    full = whole.read(entry).decode()
                    small.writestr(f"{info}/METADATA", metadata(version, full))
    return target


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make mindspore_rec_serving of mindspore_rec.")
    parser.add_argument("wheels", type=Path, nargs="+", help="such as output/mindspore_rec-*.whl")
    for each in parser.parse_args().wheels:
        print(make(each))
