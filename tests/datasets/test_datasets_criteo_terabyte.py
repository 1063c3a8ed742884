# SPDX-License-Identifier: Apache-2.0
"""Days of the terabyte set from a site here that lists its files as Criteo's does."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from datasets.criteo import terabyte

FOLDER = "data/day=2015-02-16"
FILES = {f"{FOLDER}/part-{k:05d}.snappy.parquet": os.urandom(1000 + k) for k in range(5)}


class Site(ThreadingHTTPServer):
    """``asked`` lists what was asked for."""

    asked: list[str]
    files = FILES


class Handler(BaseHTTPRequestHandler):
    """A list of files in pages of two, and the files."""

    server: Site

    def do_GET(self) -> None:  # noqa: N802 - the base class's name
        path, _, query = unquote(self.path).partition("?")
        self.server.asked.append(path)
        if path.startswith(f"/api/{terabyte.DATASET}/tree/main/{FOLDER}"):
            at = int(query.partition("cursor=")[2] or 0)
            names = list(self.server.files)
            body = json.dumps(
                [
                    {"type": "file", "path": name, "size": len(self.server.files[name]),
                     "lfs": {"oid": hashlib.sha256(FILES[name]).hexdigest()}}
                    for name in names[at : at + 2]
                ]
            ).encode()  # fmt: skip
            self.send_response(200)
            if at + 2 < len(names):
                self.send_header(
                    "Link", f'<{self.path.partition("?")[0]}?cursor={at + 2}>; rel="next"'
                )
        else:
            name = path.removeprefix(f"/{terabyte.DATASET}/resolve/main/")
            if name not in self.server.files:
                self.send_error(404)
                return
            body = self.server.files[name]
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the tests quiet."""


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site(("127.0.0.1", 0), Handler)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def fetched(site: Site, tmp_path: Path, *more: str) -> int:
    site.asked.clear()
    address = f"http://127.0.0.1:{site.server_port}"
    return terabyte.main(["--output", str(tmp_path), "--days", "1", "--site", address, *more])


def test_a_day_is_fetched_once_and_checked(site, tmp_path, capsys) -> None:
    assert fetched(site, tmp_path) == 0
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == FILES
    assert "day 1 (2015-02-16): 5 files" in capsys.readouterr().out
    damaged, gone = (tmp_path / name for name in list(FILES)[1:3])
    damaged.write_bytes(b"\0" + damaged.read_bytes()[1:])
    gone.unlink()
    assert fetched(site, tmp_path) == 0
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == FILES
    assert len([path for path in site.asked if "/resolve/" in path]) == 2


def test_what_does_not_have_its_digest_is_not_kept(site, tmp_path, capsys) -> None:
    name = list(FILES)[2]
    site.files = {**FILES, name: b"another"}
    assert fetched(site, tmp_path) == 1
    assert "must have SHA-256" in capsys.readouterr().err
    assert not (tmp_path / name).exists() and (tmp_path / list(FILES)[0]).exists()


def test_a_sample_and_days_that_are_not_there(site, tmp_path, capsys) -> None:
    assert fetched(site, tmp_path, "--most-files", "2") == 0
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    assert fetched(site, tmp_path, "--days", "2") == 1
    assert "404" in capsys.readouterr().err
    assert fetched(site, tmp_path, "--most-files", "0") == 1
    for days in ("24", "-1", "1-x", "5-3", ""):
        with pytest.raises(SystemExit):
            fetched(site, tmp_path, "--days", days)
    with pytest.raises(ValueError, match="day must be from 0 to 23"):
        terabyte.files_of_day(24)


def test_paths_that_lead_out_are_refused(site, tmp_path, capsys) -> None:
    site.files = {f"{FOLDER}/../../../x.parquet": b"1"}
    FILES.update(site.files)
    try:
        assert fetched(site, tmp_path) == 1
        assert "inside the set" in capsys.readouterr().err
    finally:
        for name in site.files:
            del FILES[name]
