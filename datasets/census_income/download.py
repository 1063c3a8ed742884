# SPDX-License-Identifier: Apache-2.0
"""Fetch Census-Income (KDD) from UCI: ``python -m datasets.census_income.download --help``.

UCI Machine Learning Repository, https://archive.ics.uci.edu/dataset/117/census+income+kdd.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import sys
import zlib
from pathlib import Path

from datasets.census_income.schema import FILES
from datasets.common.download import copy_local, fetch

__all__ = ["SHA256", "URL", "check_content", "main"]

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/census-income-mld"
SHA256 = {
    "census-income.data.gz": "3676a81db7d3528f3f8b9f3c699d0f0aa28db45e6e994fa0b8ed38327539ee86",
    "census-income.test.gz": "98402b1ab879573d0a7f38a699a40258080e25e33d3401e7bf9c96d3fa0fab8c",
}
"""Digest of the text inside each file: the same text may be packed in more than one way."""
_PIECE = 1 << 20


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m datasets.census_income.download",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", required=True, type=Path, help="directory for the two files")
    parser.add_argument("--url", default=URL, help="directory at UCI (default %(default)s)")
    parser.add_argument(
        "--from-local", type=Path, metavar="DIR", help="take the files from DIR, no network"
    )
    options = parser.parse_args(arguments)
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        for name in FILES.values():
            place = options.output / name
            if options.from_local is not None:
                copy_local(options.from_local / name, place)
            else:
                fetch(f"{options.url}/{name}", place)
            check_content(place)
            print(place)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def check_content(path: Path) -> None:
    """Raise an error if a file's text differs from the published data.

    Args:
        path: One of the two files, under its published name.

    Raises:
        ValueError: the file is not complete gzip data, or the text differs from the published text.
            The file is removed.
    """
    digest = hashlib.sha256()
    try:
        with gzip.open(path) as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        path.unlink()
        raise ValueError(f"{path} is not whole gzip data: {error}") from error
    if digest.hexdigest() != SHA256[path.name]:
        path.unlink()
        raise ValueError(f"{path} must hold text of SHA-256 {SHA256[path.name]}")


if __name__ == "__main__":
    sys.exit(main())
