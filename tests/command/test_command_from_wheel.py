# SPDX-License-Identifier: Apache-2.0
"""From a wheel and a table to answers of a server, without a clone: `init` to `curl`."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from mindspore_rec.stream import KafkaWriter, pack
from tests.command.click_table import click_table
from tests.support.installed import installed_environment, installed_python
from tests.support.kafka_broker import make_topic, started_broker
from tests.support.s3_server import KEYS, started_s3

ROWS, NEW = 1500, 5


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel."""
    return installed_python(tmp_path_factory.mktemp("installed"))


@dataclass
class Walk:
    """A user's folder, and the command of an installed wheel.

    Args:
        command: path of `mindspore-rec`.
        folder: the folder, empty at first.
    """

    command: Path
    folder: Path

    def run(self, *arguments: str, more: tuple[str, ...] = ()) -> str:
        """Run the command; return what it printed."""
        with (self.folder / "errors").open("w") as errors:
            done = self._start([*arguments, *more], errors)
            printed, _ = done.communicate(timeout=300)
        assert done.returncode == 0, (self.folder / "errors").read_text() + printed
        return printed

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the model; yield its URL when it can be asked."""
        with (self.folder / "errors").open("w") as errors:
            server = self._start(["serve", "clicks.yaml", "--port", "0"], errors)
        try:
            assert server.stdout is not None
            listening = re.match(r"listening at (\S+)", server.stdout.readline())
            is_ready = server.stdout.readline().startswith("version ")
            assert listening and is_ready, (self.folder / "errors").read_text()
            yield listening[1]
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0

    def _start(self, arguments: list[str], errors: IO[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.command, *arguments],
            cwd=self.folder,
            env=installed_environment(**KEYS),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def curl(url: str, body: Any) -> Any:
    """Post JSON by curl, or by Python on a machine without it; return the answer."""
    text, kind = json.dumps(body), "Content-Type: application/json"
    if shutil.which("curl"):
        command = ["curl", "-sS", "--noproxy", "*", url, "-H", kind, "-d", text]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return json.loads(done.stdout)
    request = urllib.request.Request(url, text.encode(), dict([kind.split(": ")]))
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def tables(has_lists: bool = True) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return rows to train on, and new rows without labels."""
    rows = click_table(ROWS + NEW)
    if not has_lists:
        rows = rows.drop(columns="tags")
    new = rows[ROWS:].drop(columns="clicked").reset_index(drop=True)
    if has_lists:
        new["tags"] = [["new"]] * NEW  # a request has lists of one length
    return rows[:ROWS], new


def columns_of(new: pd.DataFrame) -> dict[str, list[Any]]:
    """Return rows as JSON values of a request, times in seconds."""
    made = {name: list(new[name]) for name in new.columns}
    return made | {"time": [each.timestamp() for each in new["time"]]}


def walk(
    user: Walk,
    source: str,
    new: pd.DataFrame,
    new_source: str,
    edit: Callable[[str], str] = str,
    more: tuple[str, ...] = (),
) -> None:
    """Take all steps, and compare the server's answers with the predictions."""
    yaml = edit(user.run("init", source, "--label", "clicked", "--time", "time"))
    (user.folder / "clicks.yaml").write_text(yaml)
    user.run("train", "clicks.yaml", "--epochs", "1", "--no-baseline", more=more)
    user.run("predict", "clicks.yaml", new_source, "-o", "scores.csv")
    scores = pd.read_csv(user.folder / "scores.csv")["probability"]
    assert len(scores) == NEW and scores.nunique() > 1
    with user.served() as url:
        answer = curl(f"{url}/infer", {"columns": columns_of(new)})
    assert answer["outputs"][0]["data"] == pytest.approx(scores.tolist(), rel=1e-5), answer


@pytest.fixture
def user(python: Path, tmp_path: Path) -> Walk:
    (tmp_path / "empty").mkdir()
    return Walk(python.with_name("mindspore-rec"), tmp_path / "empty")


def test_csv(user: Walk) -> None:
    rows, new = tables(has_lists=False)
    rows.to_csv(user.folder / "clicks.csv", index=False)
    new.to_csv(user.folder / "new.csv", index=False)
    walk(user, "clicks.csv", new, "new.csv")


def test_parquet(user: Walk) -> None:
    rows, new = tables()
    rows.to_parquet(user.folder / "clicks.parquet")
    new.to_parquet(user.folder / "new.parquet")
    walk(user, "clicks.parquet", new, "new.parquet")


def test_s3(user: Walk, tmp_path: Path) -> None:
    rows, new = tables()
    with started_s3(tmp_path / "s3.log") as address:
        keys = {"access_key": "key", "secret_key": "secret", "region": "us-east-1"}
        place = {"endpoint_override": address, "scheme": "http"}
        system = pafs.S3FileSystem(**keys, **place, allow_bucket_creation=True)
        system.create_dir("shop")
        for day in (1, 2):
            half = rows[(day - 1) * ROWS // 2 : day * ROWS // 2]
            path = f"shop/clicks/day={day}/a.parquet"
            pq.write_table(
                pa.Table.from_pandas(half, preserve_index=False), path, filesystem=system
            )
        pq.write_table(pa.Table.from_pandas(new), "shop/new.parquet", filesystem=system)
        options = f"?endpoint_override={address}&scheme=http&region=us-east-1"
        walk(
            user,
            f"s3://shop/clicks/*/*.parquet{options}",
            new,
            f"s3://shop/new.parquet{options}",
            lambda yaml: re.sub(r"(?m)^  day: .*", "  day: ignored", yaml),
        )


@pytest.mark.kafka
def test_kafka(user: Walk, tmp_path: Path) -> None:
    rows, new = tables(has_lists=False)
    rows[:500].to_parquet(user.folder / "sample.parquet")
    new.to_parquet(user.folder / "new.parquet")
    with started_broker(tmp_path / "kafka") as broker:
        topic = make_topic(broker.address)
        send(broker.address, topic, rows)
        kafka = f'{{servers: "{broker.address}", topic: {topic}, sample: sample.parquet}}'
        walk(
            user,
            "sample.parquet",
            new,
            "new.parquet",
            lambda yaml: _for_topic(yaml, f"{{kafka: {kafka}}}"),
            ("--idle-seconds", "1"),
        )


def _for_topic(yaml: str, source: str) -> str:
    """Return a proposed YAML file with a topic as source, without settings for files only."""
    assert ", schedule: plateau, refit: true" in yaml
    yaml = yaml.replace(", schedule: plateau, refit: true", "")
    return yaml.replace("source: sample.parquet", f"source: {source}")


def send(address: str, topic: str, rows: pd.DataFrame) -> None:
    """Send rows in messages of 100."""
    table = pa.Table.from_pandas(rows, preserve_index=False)
    writer = KafkaWriter(address)
    try:
        for start in range(0, len(rows), 100):
            writer.send(topic, None, pack(table.slice(start, 100)))
        writer.flush()
    finally:
        writer.close()
