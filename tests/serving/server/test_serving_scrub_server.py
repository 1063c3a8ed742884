# SPDX-License-Identifier: Apache-2.0
"""A server finds rows that change by themselves in its memory: of one process, and of workers."""

from __future__ import annotations

import http.client
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec.common.rows.quantise import to_bytes
from tests.parameter.test_digest import flip
from tests.serving.serving_network import UNKNOWN, ids
from tests.serving.shared.test_serving_shared_scrub import flip_rows
from tests.support.http_server import Server, children, ready_server

OPTIONS = ["--scrub-seconds=0.2", "--wait-seconds=300"]
ROWS = {"float32": [], "int8": ["--rows=int8"]}


def places_of(pid: int, key: int, value: bytes, offset: int) -> list[int]:
    """Addresses of a row's numbers in a process: some bytes after the key, and in no file."""
    wanted = key.to_bytes(8, "little")
    found = []
    text = Path(f"/proc/{pid}/maps").read_text()
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in text.splitlines():
            place, rights, _, _, inode = line.split()[:5]
            if not rights.startswith("rw") or inode != "0":
                continue
            begin, end = (int(each, 16) for each in place.split("-"))
            for at in range(begin, end, 1 << 24):
                memory.seek(at)
                try:
                    content = memory.read(min(end - at, 1 << 24))
                except OSError:
                    continue
                spot = content.find(value)
                while spot >= 0:
                    if spot >= offset and content[spot - offset : spot - offset + 8] == wanted:
                        found.append(at + spot)
                    spot = content.find(value, spot + 1)
    return found


def shared_memory(pid: int) -> Path:
    """The file of memory that the processes of a server share."""
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    (found,) = (each for each in descriptors if "memfd:mindspore_rec" in os.readlink(each))
    return found


def scrub_of(server: Server) -> Any:
    status, found = server.client().ask("/status")
    assert status == 200
    return found["scrub"]


def metrics(server: Server) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


@pytest.mark.parametrize("rows", ["float32", "int8"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_row_that_changed_in_a_server_is_named(
    exported: Path, workers: int, rows: str, tmp_path: Path, wait: Any
) -> None:
    values = np.full((1, 4), 6, np.float32)
    # In shared memory the codes begin with scale and offset; so do those of one process.
    wanted = values.tobytes() if rows == "float32" else to_bytes(values, 8).tobytes()
    key, name = 21, "serving.one"
    log = tmp_path / "stderr"
    with (
        log.open("w") as errors,
        Server(exported, *OPTIONS, f"--workers={workers}", *ROWS[rows], errors=errors) as server,
    ):
        server.wait_ready()
        assert scrub_of(server)["seconds"] > 0  # from the first answer on
        wait(lambda: scrub_of(server)["rounds"] >= 2)
        found = metrics(server)
        labels = f'{{model="model",table="{name}"}}'
        assert found[f"mindspore_rec_serving_table_scrubbed_rows_total{labels}"] >= 100
        assert found[f"mindspore_rec_serving_table_damaged_rows{labels}"] == 0
        assert log.read_text() == ""
        pid = server.process.pid if workers == 1 else children(server.process.pid)["rec writer"]
        if workers > 1:
            fd = os.open(shared_memory(pid), os.O_RDWR)
            flip_rows(fd, key, wanted)
            os.close(fd)
        else:
            places = places_of(pid, key, wanted, 20 if rows == "float32" else 8)
            assert places
            with open(f"/proc/{pid}/mem", "r+b", 0) as memory:
                for at in places:  # copies in memory that was freed are among them
                    flip(memory, at + 2, 4)
        began = time.monotonic()
        wait(lambda: scrub_of(server)["tables"][name]["damaged_rows"] == 1)
        took = time.monotonic() - began
        assert scrub_of(server)["tables"][name]["damaged_keys"] == [key]
        assert scrub_of(server)["tables"]["serving.two"]["damaged_rows"] == 0
        assert metrics(server)[f"mindspore_rec_serving_table_damaged_rows{labels}"] == 1
        said = log.read_text()
        assert f"table '{name}'" in said and f"key {key}: " in said and took < 60
        status, answer = server.client().infer(ids(1, first=key))
        assert status == 200 and UNKNOWN not in answer["outputs"][0]["data"]


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_found_while_deltas_come(
    workers: int, trainer: Any, tmp_path: Path, wait: Any
) -> None:
    root, log = tmp_path / "run", tmp_path / "stderr"
    trainer(root, 0.0, 7, 3000)
    options = ["--scrub-seconds=0.01", "--wait-seconds=300", f"--workers={workers}"]
    with log.open("w") as errors, Server(root, *options, errors=errors) as server:
        server.wait_ready()
        client = server.client()
        first = client.ask("/status")[1]["version"]

        def enough() -> bool:
            status, answer = client.infer(ids(4))
            assert status == 200
            assert len({each for each in answer["outputs"][0]["data"][:12]}) == 1
            found = client.ask("/status")[1]
            return found["scrub"]["rounds"] > 6 and found["version"] > first + 20

        wait(enough)
        if workers > 1:  # the next writer notes the rows that it finds
            writer = children(server.process.pid)["rec writer"]
            os.kill(writer, signal.SIGKILL)
            wait(lambda: children(server.process.pid).get("rec writer", writer) != writer)
            first = client.ask("/status")[1]["version"]
            wait(lambda: client.ask("/status")[1]["version"] > first + 20)
            rounds = scrub_of(server)["rounds"]
            wait(lambda: scrub_of(server)["rounds"] > rounds + 6)
        tables = scrub_of(server)["tables"]
        assert all(table["damaged_rows"] == 0 for table in tables.values())
    assert "changed by themselves" not in log.read_text()


def test_it_is_off_without_the_option(exported: Path) -> None:
    with ready_server(exported) as server:
        assert scrub_of(server) is None
        assert not [name for name in metrics(server) if "scrubbed" in name or "damaged" in name]
