# SPDX-License-Identifier: Apache-2.0
"""Downloads from a server here that can break off, change its file, or know no ranges."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from datasets.census_income import download as census_download
from datasets.common.download import copy_local, fetch
from datasets.criteo import download as criteo_download

DATA = bytes(range(256)) * 9000
DIGEST = hashlib.sha256(DATA).hexdigest()


class Server(ThreadingHTTPServer):
    """One file; ``breaks`` lists after how many bytes of an answer the connection ends."""

    data = DATA
    etag = '"v1"'
    ranges = True
    breaks: list[int]
    requests: list[tuple[str | None, int]]


class Handler(BaseHTTPRequestHandler):
    """GET with Range and If-Range."""

    server: Server

    def do_GET(self) -> None:  # noqa: N802 - the base class's name
        """Answer with the file from the asked byte on."""
        server, asked = self.server, self.headers.get("Range")
        if self.path.startswith("/missing"):
            self.send_error(404)
            return
        start = 0
        if asked and server.ranges and self.headers.get("If-Range") == server.etag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        server.requests.append((asked, start))
        body = server.data[start:]
        if start and not body:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(server.data)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            end = len(server.data) - 1
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(server.data)}")
        self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.breaks.pop(0)] if server.breaks else body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the tests quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.breaks, made.requests = [], []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def url(server: Server, name: str = "file") -> str:
    return f"http://127.0.0.1:{server.server_port}/{name}"


def test_a_broken_download_goes_on_where_it_broke(server, tmp_path) -> None:
    server.breaks = [700_000, 300_000]
    place = fetch(url(server), tmp_path / "file", DIGEST)
    assert place.read_bytes() == DATA
    starts = [start for _, start in server.requests]
    assert starts == [0, 700_000, 1_000_000]
    assert os.listdir(tmp_path) == ["file"]


def test_a_later_call_goes_on_too(server, tmp_path) -> None:
    server.breaks = [500_000]
    with pytest.raises(OSError, match="broke after 500000 of"):
        fetch(url(server), tmp_path / "file", attempts=1)
    assert not (tmp_path / "file").exists()
    assert fetch(url(server), tmp_path / "file", DIGEST).read_bytes() == DATA
    assert server.requests[1] == ("bytes=500000-", 500_000)


def test_a_file_that_changed_meanwhile_is_fetched_anew(server, tmp_path) -> None:
    server.breaks = [500_000]
    with pytest.raises(OSError):
        fetch(url(server), tmp_path / "file", attempts=1)
    server.data, server.etag = DATA[::-1], '"v2"'
    assert fetch(url(server), tmp_path / "file").read_bytes() == DATA[::-1]
    assert server.requests[1] == ("bytes=500000-", 0)


def test_a_server_without_ranges_sends_all_again(server, tmp_path) -> None:
    server.ranges, server.breaks = False, [500_000]
    assert fetch(url(server), tmp_path / "file", DIGEST).read_bytes() == DATA
    assert [start for _, start in server.requests] == [0, 0]


def test_a_break_after_the_last_byte_is_a_whole_file(server, tmp_path) -> None:
    (tmp_path / "file.partial").write_bytes(DATA)
    (tmp_path / "file.partial.tag").write_text(server.etag)
    assert fetch(url(server), tmp_path / "file", DIGEST).read_bytes() == DATA
    assert os.listdir(tmp_path) == ["file"]


def test_a_wrong_digest_leaves_nothing(server, tmp_path) -> None:
    with pytest.raises(ValueError, match="must have SHA-256"):
        fetch(url(server), tmp_path / "file", "0" * 64)
    assert os.listdir(tmp_path) == []
    (tmp_path / "local").write_bytes(b"x")
    with pytest.raises(ValueError, match="must have SHA-256"):
        copy_local(tmp_path / "local", tmp_path / "file", DIGEST)
    assert os.listdir(tmp_path) == ["local"]


def test_a_file_that_is_there_is_kept(server, tmp_path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    fetch(url(server), tmp_path / "file", DIGEST)
    assert server.requests == []
    (tmp_path / "file").write_bytes(b"other")
    with pytest.raises(ValueError, match="must have SHA-256"):
        fetch(url(server), tmp_path / "file", DIGEST)


def test_refusals_come_back_as_they_are(server, tmp_path) -> None:
    with pytest.raises(OSError, match="404"):
        fetch(url(server, "missing"), tmp_path / "file")
    with pytest.raises(ValueError, match="http or https"):
        fetch("file:///etc/hostname", tmp_path / "file")
    with pytest.raises(ValueError, match="attempts"):
        fetch(url(server), tmp_path / "file", attempts=0)
    with pytest.raises(ValueError, match="same file"):
        (tmp_path / "a").write_bytes(b"x")
        copy_local(tmp_path / "a", tmp_path / "a")


def archive_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_criteo_from_the_server_and_from_a_local_file(server, tmp_path, capsys) -> None:
    members = {"dac/train.txt": b"rows\n" * 9999, "../evil": b"x", "readme.txt": b"terms"}
    server.data = archive_of(members)
    server.breaks = [len(server.data) // 2]
    digest = hashlib.sha256(server.data).hexdigest()
    arguments = ["--output", str(tmp_path / "a"), "--url", url(server), "--sha256", digest]
    assert criteo_download.main(arguments) == 0
    assert (tmp_path / "a" / "train.txt").read_bytes() == members["dac/train.txt"]
    assert not (tmp_path / "evil").exists() and len(server.requests) == 2
    (tmp_path / "local.tar.gz").write_bytes(server.data)
    arguments = ["--output", str(tmp_path / "b"), "--from-local", str(tmp_path / "local.tar.gz")]
    assert criteo_download.main(arguments) == 0
    assert (tmp_path / "b" / "readme.txt").read_bytes() == b"terms"
    assert digest in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (archive_of({"train.txt": b"rows\n" * 9999})[:-20], "not a whole gzip tar archive"),
        (archive_of({"train.txt": b"rows\n" * 9999})[:-4] + b"\0\0\0\0", "not a whole gzip"),
        (b"no archive", "not a whole gzip tar archive"),
        (archive_of({"other.txt": b""}), "has no train.txt"),
    ],
    ids=["cut", "another sum", "text", "another file"],  # an archive has the time in it
)
def test_a_bad_archive_is_refused(tmp_path, capsys, data, words) -> None:
    (tmp_path / "local").write_bytes(data)
    arguments = ["--output", str(tmp_path / "a"), "--from-local", str(tmp_path / "local")]
    assert criteo_download.main(arguments) == 1
    assert words in capsys.readouterr().err
    assert len(os.listdir(tmp_path / "a")) == 1


def test_census_text_of_another_content_is_refused(tmp_path, capsys) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, data in (("census-income.data.gz", gzip.compress(b"x")),):
        (source / name).write_bytes(data)
        assert run_census(source, tmp_path / "a") == 1
        assert "SHA-256" in capsys.readouterr().err
        (source / name).write_bytes(data[:-3])
        assert run_census(source, tmp_path / "a") == 1
        assert "not whole gzip data" in capsys.readouterr().err
    assert os.listdir(tmp_path / "a") == []
    assert os.listdir(source) == ["census-income.data.gz"]


def run_census(source: Path, output: Path) -> int:
    return census_download.main(["--output", str(output), "--from-local", str(source)])
