# SPDX-License-Identifier: Apache-2.0
"""The command trains on a Kafka topic, continues, and predicts with the newest state."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from mindspore_rec.command.main import main
from mindspore_rec.common.stream.kafka_client import KafkaClient
from mindspore_rec.stream import KafkaWriter, pack
from tests.command.click_table import click_table
from tests.support.kafka_broker import make_topic, started_broker
from tests.support.processes import run_program

pytestmark = pytest.mark.kafka

YAML = """\
source: {{kafka: {{servers: "{address}", topic: {topic}, sample: sample.parquet}}}}
columns:
  user: category
  item: category
  price: number
  clicked: label
embedding_dim: 4
model: {{name: deepfm, hidden: [16]}}
train: {{batch_size: 100, learning_rate: 0.02, delta_seconds: 0.5}}
"""


def test_a_topic_is_trained_on_and_continued(tmp_path: Path):
    click_table(500).to_parquet(tmp_path / "sample.parquet")
    with started_broker(tmp_path / "kafka") as broker:
        topic = make_topic(broker.address)
        yaml = tmp_path / "clicks.yaml"
        yaml.write_text(YAML.format(address=broker.address, topic=topic))
        for more in ([], ["--resume"]):
            send(broker.address, topic, 2000)
            done = run_program("-m", "mindspore_rec", "train", yaml, "--idle-seconds", "2", *more)
            assert done.returncode == 0, done.stderr
            metrics = json.loads((tmp_path / "clicks.run" / "metrics.json").read_text())
            assert metrics["training"]["samples"] == 2000
    assert metrics["progressive"]["auc"] > 0.5
    new = tmp_path / "sample.parquet"
    assert main(["predict", str(yaml), str(new), "-o", str(tmp_path / "scores.csv")]) == 0
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 501


def send(address: str, topic: str, rows: int) -> None:
    """Send clicks in messages of 100 rows."""
    table = pa.Table.from_pandas(click_table(rows).drop(columns=["tags", "time"]))
    writer = KafkaWriter(address)
    try:
        for start in range(0, rows, 100):
            writer.send(topic, None, pack(table.slice(start, 100)))
        writer.flush()
    finally:
        writer.close()


def test_lines_of_json_need_no_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Types follow from the columns, of which the sample decides whether users are texts."""
    click_table(500).to_parquet(tmp_path / "sample.parquet")
    with started_broker(tmp_path / "kafka") as broker:
        assert main(["doctor", "--only", "broker", "--kafka", broker.address]) == 0
        assert f"{broker.address} answers, with 1 broker" in capsys.readouterr().out
        topic = make_topic(broker.address)
        rows = click_table(400).drop(columns=["tags", "time"])
        writer = KafkaWriter(broker.address)
        for row in [*rows.to_dict("records"), {"user": "u1", "price": 1.0, "clicked": 2}]:
            writer.send(topic, None, json.dumps(row).encode())
        writer.close()
        yaml = tmp_path / "clicks.yaml"
        text = YAML.format(address=broker.address, topic=topic)
        text = text.replace("kafka: {", "kafka: {format: json, dead_letters: dead, ")
        yaml.write_text(text)
        done = run_program("-m", "mindspore_rec", "train", yaml, "--idle-seconds", "2")
        assert done.returncode == 0, done.stderr
        metrics = json.loads((tmp_path / "clicks.run" / "metrics.json").read_text())
        assert metrics["training"]["samples"] == 400
        client = KafkaClient(broker.address, "dead")
        client.seek({0: 0})
        (letter,) = client.poll(5, ())[0]
        client.close()
    detail = dict(letter.headers)["detail"].decode()
    assert detail.startswith("column 'clicked' must be 0 or 1"), detail
