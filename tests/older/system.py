# SPDX-License-Identifier: Apache-2.0
"""Debian 11 in a folder of this machine, with CPython 3.11 and the wheel.

Debian 11 has glibc 2.31 and Python 3.9. So CPython 3.11 is compiled there, from the source package
of Debian 12. Programs run in the folder by chroot, which only root may do; nothing is installed on
this machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["OlderSystem"]

ROOT = Path(__file__).resolve().parents[2]
MIRROR = "http://deb.debian.org/debian"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCES = f"""deb {MIRROR} bullseye main
deb-src [signed-by={KEYS}] {MIRROR} bookworm main
"""
COMPILE = """set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends build-essential zlib1g-dev libssl-dev libffi-dev \\
  libbz2-dev liblzma-dev libsqlite3-dev libexpat1-dev xz-utils >/dev/null
cd /usr/src
rm -rf python3.11* /usr/local/bin/* /usr/local/lib/*
apt-get source -qq python3.11
cd python3.11-*/
# A patch of Debian includes an internal header in a module.
sed -i '1i #define Py_BUILD_CORE_MODULE 1' Modules/pyexpat.c
./configure -q --prefix=/usr/local --with-system-expat --with-ensurepip=no
make -s "-j$(nproc)"
make -s install
/usr/local/bin/python3.11 -c 'import bz2, ctypes, lzma, pyexpat, sqlite3, ssl'
"""
# The mounts end with the program that `unshare` starts. The tree has the same path inside.
ENTER = """set -e
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mkdir -p "$1$2"
mount --bind "$2" "$1$2"
here=$PWD root=$1
shift 2
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$here" "$@"
"""


class OlderSystem:
    """The system in a folder, which is made if it is missing.

    Args:
        folder: where the system is, inside the tree; about 3 GB.
        wheel: the wheel, inside the tree.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder.resolve()
        self.root = self.folder / "root"
        self.log = self.folder / "log.txt"
        self._once("debian", SOURCES, self._make_root)
        self._once("python", COMPILE, lambda: self._run(self.command("sh", "-c", COMPILE)))
        wheel = wheel.resolve()
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        self._once("site", digest, lambda: self._install(wheel))

    def _once(self, name: str, what: str, make: Callable[[], None]) -> None:
        """Call `make` unless it was called for the same."""
        stamp = self.folder / f"{name}.stamp"
        if not stamp.exists() or stamp.read_text() != what:
            self.folder.mkdir(parents=True, exist_ok=True)
            make()
            stamp.write_text(what)

    def _run(self, command: list[str]) -> None:
        """Run a command, whose output is in the log; stop if it fails."""
        with self.log.open("w") as log:
            done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            sys.exit(f"{self.log.read_text()[-3000:]}\nexit status {done.returncode}: {command}")

    def _make_root(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        options = ("--variant=minbase", "--include=ca-certificates,debian-archive-keyring")
        self._run(["debootstrap", *options, "bullseye", str(self.root), MIRROR])
        (self.root / "etc/apt/sources.list").write_text(SOURCES)
        # This machine's way to the network, and whom it trusts there.
        for name in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
            if Path("/", name).exists():
                shutil.copyfile(Path("/", name), self.root / name)

    def _install(self, wheel: Path) -> None:
        """Install the wheel as a user would, into a new virtual environment."""
        installer = self.folder / "installer"
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps")
        subprocess.run([*pip, "--dest", str(installer), "pip"], check=True)
        (found,) = installer.glob("pip-*.whl")
        shutil.rmtree(self.root / "site", ignore_errors=True)
        make = ("/usr/local/bin/python3.11", "-m", "venv", "--without-pip", "/site")
        self._run(self.command(*make))
        self._run(self.python(found / "pip", "install", "--quiet", f"{wheel}[mpi]"))

    def command(self, *command: str | Path, **variables: str) -> list[str]:
        """Return the command line that runs a program of the system."""
        sets = [f"{name}={value}" for name, value in {"GLOG_v": "3", **variables}.items()]
        enter = ("unshare", "--mount", "sh", "-c", ENTER, "enter", str(self.root), str(ROOT))
        # Folders of this machine's programs mean nothing there.
        kept = [f"PATH={os.defpath}:/usr/sbin:/sbin:/usr/local/bin", "HOME=/root"]
        return ["env", "-u", "PIP_FIND_LINKS", *kept, *sets, *enter, *map(str, command)]

    def python(self, *arguments: str | Path, path: str = "", **variables: str) -> list[str]:
        """Return the command line of a Python program of the system.

        Args:
            arguments: what comes after `python`.
            path: of Python, before the installed packages.
            variables: of the environment.
        """
        return self.command("/site/bin/python", *arguments, PYTHONPATH=path, **variables)
