# SPDX-License-Identifier: Apache-2.0
"""The compiled native core: the digest of its sources, and the search for a core in other folders.

A program such as `python -m models.wide_deep.train` may run in a clone that was not compiled. In
`sys.path`, the clone comes before an installed wheel. If the wheel's core was compiled from the
clone's sources, Python uses the wheel's core.

`setup.py` runs this file to write a digest of the sources beside the core. `build.sh` runs this
file to check whether the sources have changed. `setup.py` runs this file without importing the
package, so native_core.py must not import other modules of the package.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

__all__ = ["DIGEST_FILE", "find_elsewhere", "compiled_sources", "source_digest"]

_PACKAGE = "mindspore_rec"
_CORE = f"{_PACKAGE}._native"
_HERE = Path(__file__).parent
_KINDS = ("*.cc", "*.h", "*.inl")
# File with the digest of the core's sources; the file is beside the core.
DIGEST_FILE = "_native.sources"


def source_digest(root: Path) -> str | None:
    """Return a digest of the core's sources and of the part of setup.py that compiles the sources.

    Args:
        root: folder with `setup.py` and `mindspore_rec`.

    Returns:
        64 hexadecimal digits; None if there are no sources.
    """
    setup = root / "setup.py"
    folders = [root / _PACKAGE / name for name in ("csrc", "mpi_shim")]
    if not setup.is_file() or not all(each.is_dir() for each in folders):
        return None
    # Only the text before `setup(` sets the compiler's flags; the remaining text sets names and
    # requirements.
    flags, _, _ = setup.read_bytes().partition(b"\nsetup(\n")
    digest = hashlib.sha256(hashlib.sha256(flags).digest())
    files = (each for folder in folders for kind in _KINDS for each in folder.rglob(kind))
    for path in sorted(files, key=lambda path: path.relative_to(root).as_posix()):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def compiled_sources(package: Path) -> str | None:
    """Return the digest that `setup.py` wrote to a package's folder; None if there is no digest."""
    try:
        return (package / DIGEST_FILE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _core_in(package: Path) -> Path | None:
    """Return the path of this Python's core in `package`; None if there is no such file."""
    files = (package / f"_native{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES)
    return next((each for each in files if each.is_file()), None)


def _version_in(package: Path) -> str:
    """Return the version of the package in a folder; 'unknown' if no version is found."""
    try:
        text = (package / "version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "unknown"
    version = re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    return "unknown" if version is None else version[1]


def _other_cores() -> Iterator[Path]:
    """Yield the compiled cores in other folders of Python's path, in the order of the path."""
    for entry in dict.fromkeys(sys.path):
        package = Path(entry or ".").resolve() / _PACKAGE
        core = None if package == _HERE.resolve() else _core_in(package)
        if core is not None:
            yield core


def _usable_core() -> Path:
    """Find a core that is in another folder and was compiled from the sources in this folder.

    Raises:
        ImportError: no core was compiled from these sources; the message says what to do.
    """
    root = _HERE.resolve().parent
    sources = source_digest(root)
    cores = list(_other_cores())
    for core in cores:
        if sources is not None and compiled_sources(core.parent) == sources:
            return core
    what = f"the native core of mindspore_rec {_version_in(_HERE)} in {root} is not compiled"
    remedy = (
        "install the wheel of this version again"
        if sources is None
        else f"run `bash build.sh prepare` in {root}"
    )
    if not cores:
        raise ImportError(f"{what}, and no other one is installed: {remedy}", name=_CORE)
    installed = cores[0].parent
    raise ImportError(
        f"{what}, and that of mindspore_rec {_version_in(installed)}, installed in "
        f"{installed.parent}, is of other sources: {remedy}, or install the wheel that was built "
        "of it",
        name=_CORE,
    )


class _Finder:
    """Import finder for the compiled core of an installed wheel.

    The finder is last in `sys.meta_path`, so Python calls the finder only if the package's folder
    has no core.
    """

    def find_spec(
        self,
        fullname: str,
        _path: Sequence[str] | None,
        _target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the core; None for any other module.

        Raises:
            ImportError: no core was compiled from these sources.
        """
        if fullname != _CORE:
            return None
        return importlib.util.spec_from_file_location(fullname, _usable_core())


def find_elsewhere() -> None:
    """Let Python import the core of an installed wheel if the package's folder has no core."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())


if __name__ == "__main__":
    print(source_digest(Path(sys.argv[1]) if len(sys.argv) > 1 else _HERE.parent))
