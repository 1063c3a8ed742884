# SPDX-License-Identifier: Apache-2.0
"""Download days of Criteo's terabyte set: ``python -m datasets.criteo.terabyte --help``.

The set has click logs of 24 days, 2015-02-15 to 2015-03-10. The set has about 4.4 billion rows with
the 40 columns of the Kaggle set. Criteo publishes the set at
https://huggingface.co/datasets/criteo/CriteoClickLogs under CC BY-NC-SA 4.0, as Parquet files in
one folder per day, ``data/day=2015-02-15``, about 11 GB per day. Until 2026 the files were text,
day_0.gz to day_23.gz; ``datasets.criteo.convert`` also reads these text files. Sizes and digests
come from the site's list of files.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tqdm import tqdm

from datasets.common.download import fetch
from datasets.common.manifest import sha256_of

__all__ = ["DAYS", "SITE", "RemoteFile", "fetch_day", "files_of_day", "main"]

SITE = "https://huggingface.co"
DATASET = "datasets/criteo/CriteoClickLogs"
DAYS = tuple((date(2015, 2, 15) + timedelta(days=k)).isoformat() for k in range(24))
_TIMEOUT_SECONDS = 60.0
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="next"')


class RemoteFile(NamedTuple):
    """A file of the terabyte set in the site's list of files.

    Args:
        path: path of the file in the site's repository.
        bytes: size in bytes.
        sha256: the file's digest in hexadecimal; None if the list does not have it.
    """

    path: str
    bytes: int
    sha256: str | None


def files_of_day(day: int, site: str = SITE) -> list[RemoteFile]:
    """Return the site's list of one day's files, in the order of their names.

    Args:
        day: 0 to 23.
        site: URL of the server that has the set.

    Raises:
        ValueError: ``day`` is out of range, or the list has an unexpected form.
        OSError: the site does not answer, or refuses the request.
    """
    if not 0 <= day < len(DAYS):
        raise ValueError(f"day must be from 0 to {len(DAYS) - 1}, got {day}")
    url: str | None = f"{site}/api/{DATASET}/tree/main/data/day={DAYS[day]}?recursive=true"
    entries: list[dict[str, Any]] = []
    while url is not None:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
            entries += json.load(answer)
            following = _NEXT.search(answer.headers.get("Link", ""))
        url = urllib.parse.urljoin(url, following.group(1)) if following else None
    files = [_remote(entry) for entry in entries if str(entry.get("path")).endswith(".parquet")]
    if not files:
        raise ValueError(f"{site} has no Parquet file of day {DAYS[day]}")
    return sorted(files)


def _remote(entry: dict[str, Any]) -> RemoteFile:
    path = PurePosixPath(entry["path"])
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"a file's path must be inside the set, got {entry['path']!r}")
    return RemoteFile(str(path), int(entry["size"]), entry.get("lfs", {}).get("oid"))


def fetch_day(
    day: int, output: Path, most_files: int | None = None, site: str = SITE
) -> list[Path]:
    """Download one day's files; complete existing files are kept.

    Args:
        day: 0 to 23.
        output: directory for the files; each file keeps its path in the repository.
        most_files: maximum number of files to download. Default: all.
        site: URL of the server that has the set.

    Returns:
        The paths of the files.

    Raises:
        ValueError: an argument is invalid, the site's list is invalid (see `files_of_day`), or a
            file has the wrong digest.
        OSError: as `datasets.common.download.fetch`.
    """
    paths = []
    files = files_of_day(day, site)[:most_files]
    for file in tqdm(files, desc=f"day {day}", unit="file"):
        place = output / file.path
        if not _is_whole(place, file):
            place.unlink(missing_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            address = f"{site}/{DATASET}/resolve/main/{urllib.parse.quote(file.path)}"
            fetch(address, place, file.sha256)
        paths.append(place)
    return paths


def _is_whole(place: Path, file: RemoteFile) -> bool:
    if not place.is_file() or place.stat().st_size != file.bytes:
        return False
    return file.sha256 is None or sha256_of(place) == file.sha256


def _days(text: str) -> list[int]:
    """Return the days that the text of an option lists, for example ``0,5-7``.

    Example:
        >>> _days("0,5-7")
        [0, 5, 6, 7]
    """
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise argparse.ArgumentTypeError(f"must be days as in 0,5-7, got {text!r}")
        days |= set(range(int(first), int(last or first) + 1))
    if not days or max(days) >= len(DAYS):
        raise argparse.ArgumentTypeError(f"must be days of 0 to {len(DAYS) - 1}, got {text!r}")
    return sorted(days)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m datasets.criteo.terabyte",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", required=True, type=Path, help="directory for the files")
    parser.add_argument("--days", type=_days, default=list(range(24)), help="0 to 23, as in 0,5-7")
    parser.add_argument("--most-files", type=int, help="of each day, for a sample (default: all)")
    parser.add_argument("--site", default=SITE, help="address of the site (default %(default)s)")
    options = parser.parse_args(arguments)
    try:
        if options.most_files is not None and options.most_files < 1:
            raise ValueError(f"--most-files must be at least 1, got {options.most_files}")
        for day in options.days:
            paths = fetch_day(day, options.output, options.most_files, options.site)
            print(f"day {day} ({DAYS[day]}): {len(paths)} files, as listed", flush=True)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
