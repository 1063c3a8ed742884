# SPDX-License-Identifier: Apache-2.0
"""The wheel, and environments in which it is installed and no clone can be imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from mindspore_rec import native_core
from tests.support.missing import need_package
from tests.support.processes import ROOT

__all__ = ["build_wheel", "installed_environment", "installed_python"]

_PACKAGE = ROOT / "mindspore_rec"


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the package as it is; the core is what is compiled in place."""
    for package in ("pybind11", "wheel"):
        need_package(package, f"pip install {package}")
    library = folder / "lib" / "mindspore_rec"
    library.mkdir(parents=True)
    for compiled in (*_PACKAGE.glob("*.so"), _PACKAGE / native_core.DIGEST_FILE):
        shutil.copy2(compiled, library)
    (folder / "setup.cfg").write_text(
        f"[build]\nbuild_base={folder}/build\nbuild_lib={folder}/lib\n"
        f"[egg_info]\negg_base={folder}\n"
    )
    command = [sys.executable, "setup.py", "-q", "build_py", "bdist_wheel", "--skip-build"]
    subprocess.run(
        [*command, "--dist-dir", str(folder), "--bdist-dir", str(folder / "bdist")],
        cwd=ROOT,
        env={**os.environ, "DIST_EXTRA_CONFIG": str(folder / "setup.cfg")},
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed_python(folder: Path) -> Path:
    """Make an environment with the wheel, where the packages of this one can be imported.

    Returns:
        Path of the environment's Python.
    """
    wheel = build_wheel(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--python", str(python), "install", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-compile", str(wheel)], check=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A folder that a .pth file names is searched, and its own .pth files are not read: this
    # project stays out.
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return python


def installed_environment(**more: str) -> dict[str, str]:
    """Return this process's variables without the way to the project, and `more`."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, "GLOG_v": "3", **more}
