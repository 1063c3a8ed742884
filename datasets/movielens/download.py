# SPDX-License-Identifier: Apache-2.0
"""Download MovieLens latest-small: ``python -m datasets.movielens.download --help``.

From GroupLens, https://grouplens.org/datasets/movielens/latest/. The licence is in the archive's
README.txt: research use, no commercial use without permission. GroupLens may replace the archive
with a newer version. The command prints the archive's digest; pass this digest with ``--sha256`` to
check the next download.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
import zlib
from pathlib import Path

from datasets.common.archive import archive_parser, fetch_archive

__all__ = ["URL", "extract", "main"]

URL = "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip"
MEMBERS = ("ratings.csv", "movies.csv", "README.txt")
_ARCHIVE = URL.rpartition("/")[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = archive_parser("datasets.movielens.download", __doc__, URL)
    return fetch_archive(parser.parse_args(arguments), _ARCHIVE, extract)


def extract(archive: Path, directory: Path) -> list[Path]:
    """Unpack ratings, movies and the licence, and no other files.

    Args:
        archive: the ``.zip``.
        directory: directory for the files; each file appears when it is complete.

    Returns:
        Their paths.

    Raises:
        ValueError: the file is not a complete zip archive, or a file is missing in it.
    """
    partials: dict[str, Path] = {}
    try:
        with zipfile.ZipFile(archive) as packed:
            for member in packed.namelist():
                name = Path(member).name
                if name in MEMBERS:
                    partials[name] = directory / f"{name}.partial"
                    with packed.open(member) as stream, partials[name].open("wb") as out:
                        shutil.copyfileobj(stream, out)
        missing = [name for name in MEMBERS if name not in partials]
        if missing:
            raise ValueError(f"{archive} has no {missing[0]}")
        return [partials[name].rename(directory / name) for name in MEMBERS]
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{archive} is not a whole zip archive: {error}") from error
    finally:
        for path in partials.values():
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
