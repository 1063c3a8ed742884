# SPDX-License-Identifier: Apache-2.0
"""Fetch Criteo's Kaggle archive: ``python -m datasets.criteo.download --help``.

The archive is Criteo's own, about 4.6 GB; its licence is in its readme.txt. Criteo publishes no
digest, so none is built in: the command prints the one it found, for the next download to be held
to with ``--sha256``.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
from pathlib import Path

from datasets.common.download import copy_local, fetch
from datasets.common.manifest import sha256_of

__all__ = ["URL", "extract", "main"]

URL = "https://go.criteo.net/criteo-research-kaggle-display-advertising-challenge-dataset.tar.gz"
MEMBERS = ("train.txt", "test.txt", "readme.txt")
_ARCHIVE = URL.rpartition("/")[2]
_PIECE = 1 << 20


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m datasets.criteo.download",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", required=True, type=Path, help="directory for the files")
    parser.add_argument("--url", default=URL, help="address of the archive (default %(default)s)")
    parser.add_argument(
        "--from-local", type=Path, metavar="PATH", help="take the archive from PATH, no network"
    )
    parser.add_argument("--sha256", help="digest to hold the archive to")
    parser.add_argument("--no-extract", action="store_true", help="keep the archive packed")
    options = parser.parse_args(arguments)
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        archive = options.output / _ARCHIVE
        if options.from_local is not None:
            copy_local(options.from_local, archive, options.sha256)
        else:
            fetch(options.url, archive, options.sha256)
        print(f"{archive}: sha256 {sha256_of(archive)}")
        if not options.no_extract:
            for path in extract(archive, options.output):
                print(path)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def extract(archive: Path, directory: Path) -> list[Path]:
    """Unpack the files that are known to be in the archive, and nothing else.

    Args:
        archive: The ``.tar.gz``.
        directory: Where the files appear, each when it is whole.

    Returns:
        Their paths.

    Raises:
        ValueError: not a whole gzip tar archive, or it has no ``train.txt``.
    """
    found = []
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = Path(member.name).name
                stream = tar.extractfile(member) if name in MEMBERS else None
                if stream is None:
                    continue
                partial = directory / f"{name}.partial"
                with stream, partial.open("wb") as out:
                    while piece := stream.read(_PIECE):
                        out.write(piece)
                found.append(partial.rename(directory / name))
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"{archive} is not a whole gzip tar archive: {error}") from error
    if not any(path.name == "train.txt" for path in found):
        raise ValueError(f"{archive} has no train.txt")
    return found


if __name__ == "__main__":
    sys.exit(main())
