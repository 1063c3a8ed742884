# SPDX-License-Identifier: Apache-2.0
"""The command that fetches a data set's archive and unpacks it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from datasets.common.download import copy_local, fetch
from datasets.common.manifest import sha256_of

__all__ = ["archive_parser", "fetch_archive"]


def archive_parser(module: str, description: str | None, url: str) -> argparse.ArgumentParser:
    """Return a parser with the options of a command that fetches an archive.

    Args:
        module: the command's module, in the form that ``python -m`` accepts.
        description: text of ``--help``.
        url: default address of the archive.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", required=True, type=Path, help="directory for the files")
    parser.add_argument("--url", default=url, help="address of the archive (default %(default)s)")
    parser.add_argument(
        "--from-local", type=Path, metavar="PATH", help="take the archive from PATH, no network"
    )
    parser.add_argument("--sha256", help="digest to hold the archive to")
    return parser


def fetch_archive(
    options: argparse.Namespace, name: str, extract: Callable[[Path, Path], list[Path]] | None
) -> int:
    """Download an archive, print its digest, unpack it, and return the exit code.

    Args:
        options: the command's options, parsed by the parser that `archive_parser` returns.
        name: file name of the archive in the directory.
        extract: function that unpacks an archive into a directory and returns the files; None
            leaves the archive packed.
    """
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        archive = options.output / name
        if options.from_local is not None:
            copy_local(options.from_local, archive, options.sha256)
        else:
            fetch(options.url, archive, options.sha256)
        print(f"{archive}: sha256 {sha256_of(archive)}")
        for path in extract(archive, options.output) if extract is not None else []:
            print(path)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
