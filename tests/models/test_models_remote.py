# SPDX-License-Identifier: Apache-2.0
"""A run whose Redis server does not answer ends at once, with a sentence."""

from __future__ import annotations

import dataclasses
import socket
import threading

import pytest

from mindspore_rec import CacheConfig
from models.common.commands import evaluate_command, train_command
from models.common.embedding_config import EmbeddingConfig
from models.common.remote import check_remote
from models.deepfm.config import MODEL


@dataclasses.dataclass
class Config:
    """The part of a configuration that is checked."""

    embedding: EmbeddingConfig


def config(remote: str | None) -> Config:
    cache = None if remote is None else CacheConfig(host_rows=500, remote=remote)
    return Config(EmbeddingConfig(cache=cache))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("command", ["train", "eval"])
def test_a_dead_server_is_one_line(command, capsys, tmp_path):
    port = free_port()
    url = f"redis://user:secret@127.0.0.1:{port}/0"
    load = ["--load", str(tmp_path)] if command == "eval" else []
    options = ["--config", "synthetic.yaml", "--host-rows", "500", "--remote", url]
    run = train_command if command == "train" else evaluate_command
    assert run(MODEL, [*options, *load]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "secret" not in said.err
    assert said.err.startswith(f"error: no Redis server answers at redis://127.0.0.1:{port} (")


def test_one_of_a_cluster_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = listener.getsockname()[1]

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(6) == b"PING\r\n"
                connection.sendall(b"-NOAUTH Authentication required.\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        check_remote(config(f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{there}"))
        thread.join()


def test_a_server_that_takes_connections_and_says_nothing(monkeypatch):
    monkeypatch.setattr("models.common.remote._SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConnectionError, match=r"no Redis server answers .* \(timed out\)"):
            check_remote(config(f"redis://127.0.0.1:{port}"))
        check_remote(config(f"rediss://127.0.0.1:{port}"))


def test_what_is_left_to_the_tier():
    port = free_port()
    for remote in (None, f"redis://127.0.0.1:{port}?retry_seconds=60"):
        check_remote(config(remote))
