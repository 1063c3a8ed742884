# SPDX-License-Identifier: Apache-2.0
"""Download a large public file: resume after a break, check the digest, and rename the file."""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from tqdm import tqdm

from datasets.common.manifest import sha256_of

__all__ = ["copy_local", "fetch"]

_PIECE = 1 << 20
_TIMEOUT_SECONDS = 60.0


def fetch(
    url: str, destination: str | os.PathLike[str], sha256: str | None = None, attempts: int = 5
) -> Path:
    """Download ``url`` to ``destination``.

    The downloaded part is in ``destination.partial``. A later call continues the download by HTTP
    Range with If-Range. If the file has changed on the server, the whole file is downloaded again.
    If the server does not support range requests, it sends the whole file again.

    Args:
        url: An ``http`` or ``https`` address.
        destination: File to make; its directory must exist. An existing file is never downloaded
            again; its digest is checked.
        sha256: Expected digest in hexadecimal; None skips the check.
        attempts: Maximum number of attempts if the connection breaks, at least 1 (default 5).

    Returns:
        The path of the file.

    Raises:
        ValueError: an argument is out of range, or the digest differs. A new download with a wrong
            digest is removed, and an existing file with a wrong digest stays.
        OSError: the server refused the request, or the connection broke ``attempts`` times.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"url must be http or https, got {url!r}")
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, got {attempts}")
    place = Path(destination)
    if place.exists():
        _check(place, sha256)
        return place
    partial = place.with_name(place.name + ".partial")
    for attempt in range(attempts):
        try:
            _continue(url, partial)
            break
        except urllib.error.HTTPError:
            raise
        except OSError:
            if attempt == attempts - 1:
                raise
    try:
        _check(partial, sha256)
    except ValueError:
        _forget(partial)
        raise
    partial.rename(place)
    _tag_file(partial).unlink(missing_ok=True)
    return place


def copy_local(
    source: str | os.PathLike[str], destination: str | os.PathLike[str], sha256: str | None = None
) -> Path:
    """Copy a file that is already on this machine, with the same checks as `fetch`.

    Args:
        source: The file.
        destination: File to make or replace; its directory must exist.
        sha256: Expected digest in hexadecimal; None skips the check.

    Returns:
        The path of the copy.

    Raises:
        ValueError: the digest differs, or ``source`` is ``destination``.
        OSError: ``source`` cannot be read.
    """
    place = Path(destination)
    if place.exists() and place.samefile(source):
        raise ValueError(f"source and destination are the same file: {place}")
    partial = place.with_name(place.name + ".partial")
    shutil.copyfile(source, partial)
    try:
        _check(partial, sha256)
    except ValueError:
        partial.unlink()
        raise
    partial.rename(place)
    return place


def _continue(url: str, partial: Path) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    tag = _tag_file(partial).read_text() if _tag_file(partial).exists() else ""
    request = urllib.request.Request(url)
    if have and tag:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", tag)
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{have}":
            return  # nothing is left to fetch: the break came after the last byte
        raise
    with response:
        content_range = response.headers.get("Content-Range", "")
        if response.status == 206 and not content_range.startswith(f"bytes {have}-"):
            raise OSError(f"{url} answered range {content_range!r} to bytes={have}-")
        start = have if response.status == 206 else 0
        _tag_file(partial).write_text(_tag(response.headers))
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        _receive(response, partial, start, total)


def _receive(response: object, partial: Path, start: int, total: int | None) -> None:
    bar = tqdm(total=total, initial=start, unit="B", unit_scale=True, desc=partial.stem)
    with bar, partial.open("r+b" if start else "wb") as stream:
        stream.seek(start)
        stream.truncate()
        while piece := response.read(_PIECE):  # type: ignore[attr-defined]
            stream.write(piece)
            bar.update(len(piece))
        done = stream.tell()
    if total is not None and done != total:
        raise ConnectionError(f"the connection broke after {done} of {total} bytes")


def _tag(headers: object) -> str:
    """Return a value for If-Range: a strong ETag, or, without a strong ETag, Last-Modified."""
    etag = headers.get("ETag", "")  # type: ignore[attr-defined]
    if etag and not etag.startswith("W/"):
        return str(etag)
    return str(headers.get("Last-Modified", ""))  # type: ignore[attr-defined]


def _tag_file(partial: Path) -> Path:
    return partial.with_name(partial.name + ".tag")


def _forget(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _tag_file(partial).unlink(missing_ok=True)


def _check(path: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    digest = sha256_of(path)
    if digest != sha256.lower():
        raise ValueError(f"{path} must have SHA-256 {sha256}, found {digest}")
