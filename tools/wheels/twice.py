# SPDX-License-Identifier: Apache-2.0
"""Build the wheels again somewhere else, and compare all files byte by byte.

The second build runs later, in a copy of the tree in another folder, with a new environment and
another umask, language and time zone. If the bytes of a file depend on the folder, the environment,
the umask, the language, the time zone or the time, the builds differ.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["build_again", "copy_tree", "differences"]

_OTHERWISE = {"LC_ALL": "C", "TZ": "Pacific/Kiritimati"}


def copy_tree(root: Path, target: Path) -> None:
    """Copy the files that git tracks in a clone, and untracked files that git does not ignore."""
    options = ("--cached", "--others", "--exclude-standard", "-z")
    listed = subprocess.check_output(["git", "ls-files", *options], cwd=root, text=True)
    for name in filter(None, listed.split("\0")):
        if (root / name).exists():  # git also lists a file that was removed
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target / name)


def build_again(root: Path, arguments: list[str], output: Path) -> list[str]:
    """Build in a copy of the tree, and return the differences from the first build.

    Args:
        root: the tree.
        arguments: options of `tools.wheels.build` that choose what is built.
        output: the folder of the first build.
    """
    with tempfile.TemporaryDirectory(prefix="wheels-again-") as name:
        folder = Path(name)
        copy_tree(root, folder / "copy")
        places = ["--folder", str(folder / "work"), "--output", str(folder / "output")]
        subprocess.run(
            [sys.executable, "-m", "tools.wheels.build", *arguments, *places],
            cwd=folder / "copy",
            env={**os.environ, **_OTHERWISE},
            umask=0o077,
            check=True,
        )
        return differences(output, folder / "output")


def differences(first: Path, second: Path) -> list[str]:
    """Return a sentence for each file that differs between the first and the second build.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name, content in (("first", b"1"), ("second", b"2")):
        ...     (folder / name).mkdir()
        ...     _ = (folder / name / "core.so").write_bytes(content)
        >>> differences(folder / "first", folder / "second")
        ['core.so differs']
    """
    sentences = []
    files = sorted(each for each in second.rglob("*") if each.is_file())
    for file in files:
        name = file.relative_to(second)
        other = first / name
        if not other.exists():
            sentences.append(f"{name} was made by the second build alone")
        elif other.read_bytes() != file.read_bytes():
            sentences.append(f"{name} differs{_inside(other, file)}")
    return sentences or ([] if files else ["the second build made no file"])


def _inside(first: Path, second: Path) -> str:
    """Return " in" and the names of the files in which two wheels differ; '' if `first` is no
    wheel."""
    if first.suffix != ".whl":
        return ""
    contents = []
    for file in (first, second):
        with zipfile.ZipFile(file) as wheel:
            contents.append({each.filename: each.CRC for each in wheel.infolist()})
    names = sorted(contents[0].keys() | contents[1].keys())
    differing = [each for each in names if contents[0].get(each) != contents[1].get(each)]
    return f" in {', '.join(differing) or 'the order or the permissions of its files'}"
