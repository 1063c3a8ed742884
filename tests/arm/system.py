# SPDX-License-Identifier: Apache-2.0
"""A small Arm system on this machine: Debian's Python 3.11 with the wheel, run by qemu's emulator.

The system is a folder. Nothing is installed on this machine, and no kernel module is needed, since
each program is started with the emulator's name before its own. A program in the system can start
Python again by `sys.executable`, which is a script of this machine that starts the emulator. It
cannot start other programs of the system, such as mpirun.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["ArmSystem"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("python3.11", "libpython3.11", "libstdc++6", "libgomp1", "libgtest-dev")
TEST_PACKAGES = tuple(
    "pytest>=8 hypothesis>=6.100 dacite>=1.9 crc32c>=2.4 redis[hiredis]>=5.1,<9 onnx>=1.16 "
    "onnxruntime>=1.18 kafka-python>=3.0.12 cloudpickle>=2 scikit-learn>=1.3 orjson>=3.10 "
    # redis needs async-timeout before Python 3.11.3, but pip reads the version of this machine.
    "pandas>=2.1,<3 jsonschema>=4.18 async-timeout>=4.0.3".split()
)
APT = """APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Dir::State "{folder}/state";
Dir::State::status "{folder}/state/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
"""
DEBIAN = "http://deb.debian.org/debian bookworm main"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class ArmSystem:
    """The system in a folder, which is made if it is missing.

    Args:
        folder: where the system is; about 2 GB.
        wheel: the wheel for Arm.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder.resolve()
        self.root = self.folder / "root"
        self.site = self.folder / "site"
        self.programs = self.folder / "programs"
        self._write_programs()
        self._once("root", f"{PACKAGES} {DEBIAN}", self._make_root)
        self._once("site", f"{TEST_PACKAGES} {_digest(wheel)}", lambda: self._install(wheel))

    def _once(self, name: str, what: str, make: Callable[[], None]) -> None:
        """Call `make` unless it was called for the same."""
        stamp = self.folder / f"{name}.stamp"
        if not stamp.exists() or stamp.read_text() != what:
            self.folder.mkdir(parents=True, exist_ok=True)
            make()
            stamp.write_text(what)

    def _write_programs(self) -> None:
        """Write the script that starts Python, and what makes Python take it for itself."""
        self.programs.mkdir(parents=True, exist_ok=True)
        script = self.programs / "python"
        interpreter = self.root / "usr/bin/python3.11"
        emulator = f"qemu-aarch64-static -L '{self.root}' '{interpreter}'"
        script.write_text(f'#!/bin/sh\nexec {emulator} "$@"\n')
        script.chmod(0o755)
        lines = ("import sys", f"sys.executable = sys._base_executable = {str(script)!r}", "")
        (self.programs / "sitecustomize.py").write_text("\n".join(lines))

    def _make_root(self) -> None:
        folder = self.folder / "apt"
        for each in ("state/lists/partial", "cache/archives/partial"):
            (folder / each).mkdir(parents=True, exist_ok=True)
        (folder / "state" / "status").touch()
        (folder / "apt.conf").write_text(APT.format(folder=folder))
        (folder / "sources.list").write_text(f"deb [signed-by={KEYS}] {DEBIAN}\n")
        variables = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
        install = ("apt-get", "install", "-y", "-qq", "--download-only", *PACKAGES)
        for command in (("apt-get", "update", "-qq"), install):
            subprocess.run(command, env=variables, check=True, stdout=subprocess.DEVNULL)
        self.root.mkdir(exist_ok=True)
        for package in sorted((folder / "cache" / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(self.root)], check=True)

    def _install(self, wheel: Path) -> None:
        """Install the wheel, what it needs, and what the tests need."""
        tags = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux2014")
        platforms = [f"--platform={tag}_aarch64" for tag in (*tags, "manylinux_2_17")]
        # MindSpore's wheels name no processor; pip takes the one for the platforms.
        options = ("--quiet", "--upgrade", "--only-binary=:all:", "--python-version=3.11")
        target = ("--target", str(self.site), "--platform=any", *platforms)
        pip = (sys.executable, "-m", "pip", "install", *options, *target)
        # Its warnings are of packages in this Python's own environment.
        command = [*pip, f"{wheel}[mpi]", *TEST_PACKAGES]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    def command(self, *command: str | Path, **variables: str) -> list[str]:
        """Return the command line that runs a program of the system."""
        sets = [f"{name}={value}" for name, value in {"GLOG_v": "3", **variables}.items()]
        options = [part for each in sets for part in ("-E", each)]
        return ["qemu-aarch64-static", "-L", str(self.root), *options, *map(str, command)]

    def python(self, *arguments: str | Path, path: str = "", **variables: str) -> list[str]:
        """Return the command line of a Python program of the system.

        Args:
            arguments: what comes after `python`.
            path: of Python, before the installed packages.
            variables: of the environment.
        """
        paths = os.pathsep.join(filter(None, (path, str(self.site), str(self.programs))))
        program = self.root / "usr" / "bin" / "python3.11"
        return self.command(program, *arguments, PYTHONPATH=paths, **variables)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
