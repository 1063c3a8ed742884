# SPDX-License-Identifier: Apache-2.0
"""Fetch Criteo's Kaggle archive: ``python -m datasets.criteo.download --help``.

The archive is from Criteo and has about 4.6 GB. The licence is in the archive's readme.txt. Criteo
publishes no digest, so the command cannot check the download by itself. The command prints the
archive's digest; pass this digest with ``--sha256`` to check the next download.
"""

from __future__ import annotations

import gzip
import shutil
import sys
import tarfile
import zlib
from pathlib import Path
from typing import IO

from datasets.common.archive import archive_parser, fetch_archive

__all__ = ["URL", "extract", "main"]

URL = "https://go.criteo.net/criteo-research-kaggle-display-advertising-challenge-dataset.tar.gz"
MEMBERS = ("train.txt", "test.txt", "readme.txt")
_ARCHIVE = URL.rpartition("/")[2]
_PIECE = 1 << 20


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = archive_parser("datasets.criteo.download", __doc__, URL)
    parser.add_argument("--no-extract", action="store_true", help="keep the archive packed")
    options = parser.parse_args(arguments)
    return fetch_archive(options, _ARCHIVE, None if options.no_extract else extract)


def extract(archive: Path, directory: Path) -> list[Path]:
    """Unpack the known files of the archive, and no other files.

    Args:
        archive: The ``.tar.gz``.
        directory: Directory for the files; each file appears when the file is complete.

    Returns:
        Their paths.

    Raises:
        ValueError: the file is not a complete gzip tar archive, or it has no ``train.txt``.
    """
    partials: dict[str, Path] = {}
    try:
        # read the stream to its end, because gzip compares the checksum only at the end
        with gzip.open(archive) as unpacked:
            with tarfile.open(fileobj=unpacked, mode="r|") as tar:
                for member in tar:
                    name = Path(member.name).name
                    stream = tar.extractfile(member) if name in MEMBERS else None
                    if stream is not None:
                        partials[name] = directory / f"{name}.partial"
                        _copy(stream, partials[name])
            while unpacked.read(_PIECE):
                pass
        if "train.txt" not in partials:
            raise ValueError(f"{archive} has no train.txt")
        return [path.rename(directory / name) for name, path in partials.items()]
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{archive} is not a whole gzip tar archive: {error}") from error
    finally:
        for path in partials.values():
            path.unlink(missing_ok=True)


def _copy(stream: IO[bytes], place: Path) -> None:
    with stream, place.open("wb") as out:
        shutil.copyfileobj(stream, out, _PIECE)


if __name__ == "__main__":
    sys.exit(main())
