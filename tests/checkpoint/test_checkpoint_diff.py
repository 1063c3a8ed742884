# SPDX-License-Identifier: Apache-2.0
"""Differences of two states, of files or of a server: what only one of them has, what differs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from mindspore_rec import MapParameter, save_checkpoint, tables_of
from mindspore_rec.common.run import live
from mindspore_rec.common.run.chain import chain_at
from mindspore_rec.common.run.diff import Difference, TableDifference, difference


class Cell(nn.Cell):
    """Tables whose rows are equal numbers, and dense parameters of one number each."""

    def __init__(self, tables: dict[str, dict[int, float]], dense: dict[str, float]) -> None:
        super().__init__()
        for name, rows in tables.items():
            table = MapParameter(key_dtype=ms.int64, value_shape=2, name=name)
            setattr(self, name.rpartition(".")[2], table)
            keys, values = list(rows), [[each, each] for each in rows.values()]
            table.put(Tensor(keys, ms.int64), Tensor(np.array(values, np.float32)))
        for name, value in dense.items():
            setattr(self, name, Parameter(Tensor([value], ms.float32), name=name))


def saved(cell: Cell, path: Path) -> Path:
    save_checkpoint(cell, path)
    for table in cell.get_parameters():
        if isinstance(table, MapParameter):
            table.close()
    return path


def test_what_only_one_state_has_is_named(unique: Callable[[], str], tmp_path: Path) -> None:
    both, first, second = unique(), unique(), unique()
    one = Cell({both: {1: 1.0, 2: 2.0, 3: 3.0}, first: {1: 0.0}}, {"x": 1.0, "y": 5.0, "u": 0.0})
    a = saved(one, tmp_path / "a")
    two = Cell({both: {2: 2.0, 3: 3.5, 4: 4.0}, second: {1: 0.0}}, {"x": 1.0, "y": 3.0, "v": 0.0})
    b = saved(two, tmp_path / "b")
    assert difference(chain_at(a), chain_at(b)) == Difference(
        tables={both: TableDifference(only_first=1, only_second=1, changed=1, same=1, largest=0.5)},
        only_first=[first, "u"],
        only_second=[second, "v"],
        dense={"y": 2.0},
    )
    assert not difference(chain_at(a), chain_at(b)).same
    assert difference(chain_at(b), chain_at(b)).same


def test_any_one_difference_is_one(unique: Callable[[], str], tmp_path: Path) -> None:
    table, other = unique(), unique()
    states = {
        "as it is": ({table: {1: 1.0}}, {"x": 1.0}),
        "another value": ({table: {1: 1.5}}, {"x": 1.0}),
        "another key": ({table: {2: 1.0}}, {"x": 1.0}),
        "one row more": ({table: {1: 1.0, 2: 1.0}}, {"x": 1.0}),
        "one table more": ({table: {1: 1.0}, other: {1: 1.0}}, {"x": 1.0}),
        "another number": ({table: {1: 1.0}}, {"x": 2.0}),
        "one parameter more": ({table: {1: 1.0}}, {"x": 1.0, "y": 1.0}),
    }
    paths = [saved(Cell(*state), tmp_path / name) for name, state in states.items()]
    for path in paths:
        same = path == paths[0]
        assert difference(chain_at(paths[0]), chain_at(path)).same == same, path.name
        assert difference(chain_at(path), chain_at(paths[0])).same == same, path.name


@contextmanager
def server(statuses: Iterator[int], answers: Mapping[str, Any]) -> Iterator[live.AskServer]:
    """Start a server with an answer for each path; its requests get one status after the other."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = next(statuses)
            text = json.dumps(answers[self.path.partition("?")[0]] if status == 200 else "no")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield live.http_client(f"http://127.0.0.1:{listening.server_port}")
        finally:
            listening.shutdown()
            thread.join()


def test_a_server_is_asked_again_only_if_it_is_busy(
    unique: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_PAUSE", 0.0)
    cell = Cell({unique(): {1: 1.0, 2: 2.0}}, {})
    path = tmp_path / "saved"
    save_checkpoint(cell, path)
    (entry,) = chain_at(path)
    (table,) = tables_of(cell)
    tables = {table.name: table.digest().to_json()}
    answers = {
        "/status": {"version": entry.step},
        "/digests": {"state": entry.state, "tables": tables},
    }
    with server(iter([503, 200, 429, 200, 200]), answers) as ask:
        (compared,) = live.compare_live(path, ask)
    assert compared.same and compared.name == table.name
    statuses = iter([404, 200, 200])
    with server(statuses, answers) as ask, pytest.raises(OSError, match="answers 404"):
        live.compare_live(path, ask)
    assert list(statuses) == [200, 200]
    table.close()
