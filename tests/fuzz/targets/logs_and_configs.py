# SPDX-License-Identifier: Apache-2.0
"""Key logs of `plan`, and configurations of the models: ValueError or TypeError."""

from __future__ import annotations

from mindspore_rec.plan.log import KeyLog
from models.common.config import read_yaml, to_json
from models.deepfm.config import Config
from models.mmoe.config import Config as MmoeConfig
from tests.fuzz.harness import Target, scratch

__all__ = ["TARGETS"]

_DIRECTORY = scratch()
_FORMATS = ("csv", "tsv", "jsonl", "parquet")


def key_log(data: bytes) -> None:
    """The first byte is the format and what is asked of it."""
    asked = data[0] if data else 0
    format = _FORMATS[asked % 4]
    path = _DIRECTORY / f"log.{format}{'.gz' if asked & 4 and format != 'parquet' else ''}"
    path.write_bytes(data[1:])
    text = format in ("csv", "tsv")
    keys: list[str | int] = [0, 1] if text and asked & 8 else ["user", "items"]
    time: str | int | None = None if asked & 16 else 2 if keys[0] == 0 else "at"
    try:
        log = KeyLog([path], keys, time, key_type="category" if asked & 32 else "auto")
        for batch in log.batches(3):
            assert batch.keys.dtype == "int64" and 1 <= batch.samples <= 3
            assert (batch.time is None) == (time is None)
    except (ValueError, TypeError):
        pass


def config(data: bytes) -> None:
    path = _DIRECTORY / "config.yaml"
    path.write_bytes(data)
    for kind in (Config, MmoeConfig):
        try:
            to_json(read_yaml(path, kind))
        except ValueError:
            pass


_YAML = [
    b"&a ",
    b"*a",
    b"<<: *a",
    b"{",
    b"}",
    b"[" * 200,
    b"!!python/none",
    b"? ",
    b"1e999",
    b"- ",
    b"!!bool maybe",
    b"!!int ",
    b"? [a]\n: ",
    b"60_000",
    b"[]",
]
_LOG = [b'{"user": 1, "items": [2], "at": 3}\n', b",", b"\t", b'"', b"\r\n", b"null", b"2020-01-01"]
TARGETS = [Target("key_log", key_log, _LOG), Target("config", config, _YAML)]
