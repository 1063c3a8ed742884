# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import sys
import urllib.request

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing import event_accumulator  # type: ignore[import-untyped]

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel, TableStats
from mindspore_rec.train.nn.tables import tables_of

pytestmark = pytest.mark.usefixtures("graph_mode")

LABEL = np.array([[1], [0], [1], [0]], np.float32)


class Net(nn.Cell):
    def __init__(self, first, second):
        super().__init__()
        self.first = HashEmbeddingLookup(1, ms.int64, "zeros", name=first)
        self.second = HashEmbeddingLookup(1, ms.int64, "zeros", name=second, permit_filter_value=3)

    def construct(self, ids):
        return self.first(ids).sum(1) + self.second(ids // 2).sum(1)


class Watch(Callback):
    """Calls a function at the end of each step, and keeps what it gives."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.seen = []

    def on_train_step_end(self, run_context):
        self.seen.append(self.function())


def make_model(first, second):
    net = Net(first, second)
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params(), 0.1))
    return model, tables_of(net)


def batches(steps):
    return [(np.arange(4 * s, 4 * s + 4).reshape(4, 1), LABEL) for s in range(steps)]


def parsed(text):
    """{(metric, table): value}, types, and help of a text in Prometheus' format."""
    values, types, helps = {}, {}, {}
    for family in text_string_to_metric_families(text):
        types[family.name], helps[family.name] = family.type, family.documentation
        for sample in family.samples:
            values[sample.name, sample.labels["table"]] = sample.value
    return values, types, helps


def test_tensorboard_shows_every_number_of_stats(unique, tmp_path):
    first, second = unique(), unique()
    model, tables = make_model(first, second)
    callback = TableStats(every_steps=2, log_dir=tmp_path / "events")
    watch = Watch(lambda: {table.name: table.stats() for table in tables})
    model.train(1, batches(5), [watch, callback], progress=False)
    events = event_accumulator.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    for name in (first, second):
        for key in watch.seen[0][name]:
            shown = [(e.step, e.value) for e in events.Scalars(f"{name}/{key}")]
            # the end of training reports what no step's report has seen
            assert shown == [(s, pytest.approx(watch.seen[s - 1][name][key])) for s in (2, 4, 5)]
    assert [e.value for e in events.Scalars(f"{first}/rows")] == [8, 16, 20]
    assert all(e.value > 0 for e in events.Scalars(f"{first}/inserts_per_second"))
    # of the second table's keys none is seen a third time
    assert [e.value for e in events.Scalars(f"{second}/inserts_per_second")] == [0, 0, 0]


def test_prometheus_file_is_whole_at_every_moment(unique, tmp_path):
    first, second = unique(), unique()
    model, tables = make_model(first, second)
    path = tmp_path / "tables.prom"
    callback = TableStats(every_steps=1, prometheus_file=path)
    watch = Watch(lambda: path.read_text())
    model.train(1, batches(5), [callback, watch], progress=False)
    for step, text in enumerate(watch.seen, 1):
        assert parsed(text)[0]["mindspore_rec_table_inserted_total", first] == 4 * step
    assert [entry.name for entry in tmp_path.iterdir()] == ["tables.prom"]

    values, types, helps = parsed(path.read_text())
    assert values["mindspore_rec_table_rows", first] == 20
    assert values["mindspore_rec_table_rows", second] == 0
    assert values["mindspore_rec_table_candidates", second] == 10
    assert types["mindspore_rec_table_rows"] == "gauge"
    assert types["mindspore_rec_table_evicted"] == "counter"
    assert "metadata" in helps["mindspore_rec_table_row_bytes"]
    for table in tables:
        renamed = {"event_time": "event_time_seconds"}
        for key, number in table.stats().items():
            name = f"mindspore_rec_table_{renamed.get(key, key)}"
            shown = {values.get((name + end, table.name)) for end in ("", "_total")} - {None}
            assert shown == {number}, key


def test_a_table_name_is_escaped(unique, tmp_path):
    name = 'a "b\\c' + unique()
    model, _ = make_model(name, unique())
    path = tmp_path / "tables.prom"
    model.train(1, batches(1), TableStats(prometheus_file=path), progress=False)
    assert parsed(path.read_text())[0]["mindspore_rec_table_rows", name] == 4


def fetch(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_prometheus_port_serves_while_training(unique):
    first = unique()
    model, _ = make_model(first, unique())
    callback = TableStats(every_steps=2, prometheus_port=0, prometheus_address="127.0.0.1")
    ports = Watch(lambda: callback.port)
    watch = Watch(lambda: parsed(fetch(callback.port))[0]["mindspore_rec_table_rows", first])
    model.train(1, batches(5), [callback, watch, ports], progress=False)
    # what the last report saw: the begin, step 2, step 4
    assert watch.seen == [0, 4 * 2, 4 * 2, 4 * 4, 4 * 4]
    assert callback.port is None
    with pytest.raises(OSError):
        fetch(ports.seen[0])
    # the same callback serves a second run
    model.train(1, batches(2), [callback, watch], progress=False)
    assert watch.seen[5:] == [20, 20]


def test_the_port_is_free_again_after_an_error(unique):
    def fail():
        raise RuntimeError("on purpose")

    model, _ = make_model(unique(), unique())
    callback = TableStats(prometheus_port=0, prometheus_address="127.0.0.1")
    with pytest.raises(RuntimeError, match="on purpose"):
        model.train(1, batches(2), [callback, Watch(fail)], progress=False)
    assert callback.port is None


def test_a_port_in_use_is_said(unique):
    model, _ = make_model(unique(), unique())
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        callback = TableStats(prometheus_port=port, prometheus_address="127.0.0.1")
        with pytest.raises(OSError, match=f"prometheus_port {port} on 127.0.0.1"):
            model.train(1, batches(1), callback, progress=False)


def test_a_network_without_tables_is_an_error(tmp_path):
    net = nn.Dense(1, 1)
    model = RecModel(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
    callback = TableStats(prometheus_file=tmp_path / "x.prom")
    with pytest.raises(ValueError, match="no table"):
        model.train(1, [(LABEL, LABEL)], callback, progress=False)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "one of log_dir, prometheus_file and prometheus_port"),
        ({"every_steps": 0, "log_dir": "x"}, ValueError, "every_steps must be in"),
        ({"every_steps": 1.5, "log_dir": "x"}, TypeError, "every_steps must be an int"),
        ({"log_dir": 3}, TypeError, "log_dir must be a path, got 3"),
        ({"prometheus_port": 65536}, ValueError, r"prometheus_port must be in \[0, 65535\]"),
        ({"prometheus_port": "80"}, TypeError, "prometheus_port must be an int"),
        ({"prometheus_file": "x.txt"}, ValueError, "must end in .prom.* got x.txt"),
        ({"prometheus_file": "nowhere/x.prom"}, ValueError, "directory that exists"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        TableStats(**arguments)


@pytest.mark.parametrize(
    ("package", "arguments", "needed"),
    [
        ("tensorboardX", {"log_dir": "x"}, "'tensorboardX>=2.6.2.2'"),
        ("prometheus_client", {"prometheus_file": "x.prom"}, "'prometheus_client>=0.20'"),
        ("prometheus_client", {"prometheus_port": 0}, "'prometheus_client>=0.20'"),
    ],
)
def test_a_missing_package_is_one_clear_sentence(monkeypatch, package, arguments, needed):
    monkeypatch.setitem(sys.modules, package, None)  # import raises ImportError
    with pytest.raises(ImportError) as error:
        TableStats(**arguments)
    assert f"pip install {needed}" in str(error.value)
    assert package in str(error.value)
