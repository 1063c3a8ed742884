# SPDX-License-Identifier: Apache-2.0
"""Histories that are kept from rows: in files, in streams, in checkpoints and in predictors."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
import pytest
from mindspore.train import Callback, RunContext

from mindspore_rec import RecModel, Schema, load, tables_of
from mindspore_rec.cache import CacheConfig, SsdConfig
from mindspore_rec.checkpoint import RecCheckpoint
from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.feature import (
    CategoryColumn,
    KeptHistoryColumn,
    LabelColumn,
    TimeColumn,
)
from mindspore_rec.serve.protocol.messages import parse_request
from mindspore_rec.serve.server.served_model import ServedModel
from mindspore_rec.serving import Predictor
from mindspore_rec.stream import (
    DataReceiver,
    DataSender,
    FeatureWorker,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
)
from tests.support.history_networks import MeanOfHistory
from tests.support.kept_histories import LENGTH, OF, clicks, schema_of, source_of
from tests.support.lives import Lives, assert_same
from tests.support.nightly import NIGHTLY, nightly
from tests.support.processes import ROOT


def plain_histories(table: pa.Table, earlier: pa.Table | None = None) -> dict[int, list[Any]]:
    """Return for each row's item the user's last events before the row's time."""
    both = table if earlier is None else pa.concat_tables([earlier, table])
    rows = sorted(both.to_pylist(), key=lambda row: row["ts"])
    return {
        row["item"]: [
            (other["item"], other["ts"], np.float32(other["price"]))
            for other in rows
            if row["user"] is not None and other["user"] == row["user"] and other["ts"] < row["ts"]
        ][-LENGTH:]
        for row in table.to_pylist()
    }


def item_keys(table: pa.Table, schema: Schema) -> dict[int, int]:
    place = next(field.start for field in schema.fields if field.name == "item")
    keys = schema.arrays_of(table, with_label=False)["ids"][:, place]
    return dict(zip(keys.tolist(), table["item"].to_pylist(), strict=True))


def found_histories(batches: Any, table: pa.Table, schema: Schema) -> dict[int, list[Any]]:
    """Return for each row's item the history in the arrays of batches."""
    items = item_keys(table, schema)
    place = next(field.start for field in schema.fields if field.name == "item")
    found: dict[int, list[Any]] = {}
    for batch in batches:
        if batch.before_step is not None:
            batch.before_step()
        arrays = dict(zip(batch.names, batch.columns, strict=True))
        offsets = arrays["recent.offsets"]
        for row, key in enumerate(arrays["ids"][:, place].tolist()):
            part = slice(offsets[row], offsets[row + 1])
            names = ("recent", "recent.ts", "recent.price")
            cells = [arrays[f"{name}.values"][part].tolist() for name in names]
            cells[0] = [items[each] for each in cells[0]]
            cells[2] = [np.float32(each) for each in cells[2]]
            found[items[key]] = list(zip(*cells, strict=True))
    return found


def model_of(name: str, table: pa.Table, **options: Any) -> RecModel:
    ms.set_seed(3)
    return RecModel(MeanOfHistory(schema_of(**options).fit(table), name=name, seed=2))


def digests(model: RecModel) -> list[Any]:
    return [each.digest() for each in tables_of(model.train_network)]


# ---- files


def test_the_rows_of_files_have_the_histories_of_their_times(unique: Any) -> None:
    table, later = clicks(200), clicks(90, 1, first=1066)
    model = model_of(unique(), table)
    schema = model.schema
    assert schema is not None
    batches = model.batches(table, 32)  # shuffled
    expected = plain_histories(table)
    assert any(len(each) == LENGTH for each in expected.values())
    both = pa.concat_tables([table, later])
    for _ in range(2):
        assert found_histories(batches.read(), both, schema) == expected
    valid = model._arrays("valid_dataset", later, is_train=False)
    last = plain_histories(later, table)
    before = digests(model)
    for _ in range(2):
        assert found_histories(valid.read(), both, schema) == last
    assert digests(model) == before
    stream = model._arrays("valid_dataset", source_of(later, 30, 3), is_train=False)
    for evaluated in (stream, model._arrays("x", model.batches(later, 50), is_train=False)):
        assert found_histories(evaluated.read(), both, schema) == last
        assert digests(model) == before
    # A second training reads the events of the first one; a training of the same rows none twice.
    assert found_histories(model.batches(table, 50).read(), both, schema) == expected
    assert digests(model) == before
    assert found_histories(model.batches(later, 50).read(), both, schema) == last


def test_a_file_and_a_stream_build_the_same_histories_and_the_same_state(unique: Any) -> None:
    table = clicks(240)
    of_file, of_stream = model_of(unique(), table), model_of(unique(), table)
    schema = of_file.schema
    assert schema is not None
    expected = found_histories(of_file.batches(table, 60).read(), table, schema)
    stream = of_stream.batches(source_of(table, 24, 10))
    assert found_histories(stream.read(), table, schema) == expected == plain_histories(table)
    one, other = (each.predict_network.users[0] for each in (of_file, of_stream))
    assert one.digest() == other.digest() and one.row_count == 8


def test_users_beyond_host_memory_are_on_ssd(tmp_path: Path, unique: Any) -> None:
    table = clicks(2400, users=500)
    one, other = model_of(unique(), table), model_of(unique(), table)
    ssd = SsdConfig(tmp_path, direct=False)
    one.predict_network.store_users(CacheConfig(host_rows=100, ssd=ssd))
    assert one.schema is not None
    found = found_histories(one.batches(source_of(table, 48, 50)).read(), table, one.schema)
    same = found_histories(other.batches(source_of(table, 48, 50)).read(), table, one.schema)
    assert found == same == plain_histories(table)
    users, plain = (each.predict_network.users[0] for each in (one, other))
    assert users.stats()["below_rows"] > 100 and users.digest() == plain.digest()


# ---- streams and restarts


def test_batches_read_ahead_do_not_change_the_state_of_the_step(
    tmp_path: Path, unique: Any
) -> None:
    table = clicks(240)
    model = model_of(unique(), table)
    state = model.predict_network.users[0]
    batches: Any = model.batches(source_of(table, 24, 10)).read()
    ahead = [next(batches) for _ in range(3)]
    assert state.row_count == 0
    ahead[0].before_step()
    users = {each for each in table["user"].to_pylist()[:24] if each is not None}
    assert state.row_count == len(users)
    batches.close()


@pytest.mark.parametrize("options", [{"only": "clicked", "eviction": 20}, *nightly({})])
def test_a_stream_that_is_killed_and_resumed_ends_with_the_same_bits(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    rng = random.Random(os.urandom(8))
    kills, steps = (20, 60) if NIGHTLY else (2, 12)
    script = ROOT / "tests" / "train" / "kept_trainer.py"
    with Lives(script) as lives:

        def begin(kind: str) -> None:
            paths = {"root": str(tmp_path / kind), "out": str(tmp_path / f"{kind}.npz")}
            lives.begin({"role": "train", "steps": steps, "options": options, **paths})

        begin("whole")
        assert lives.end() == 0
        killed = 0
        while killed < kills:
            begin("cut")
            assert lives.wait_for("restored")
            last = min(lives.restored + 1 + rng.randrange(3), steps - 1)
            assert lives.reach(last)
            time.sleep(rng.random() * 0.1)
            lives.kill()
            killed += 1
        begin("cut")
        assert lives.end() == 0
    assert_same(tmp_path / "cut.npz", tmp_path / "whole.npz")


@pytest.mark.skipif(not NIGHTLY, reason="a case that MINDSPORE_REC_NIGHTLY=1 runs")
def test_a_training_on_files_is_resumed_bit_for_bit(tmp_path: Path, unique: Any) -> None:
    name, table = unique(), clicks(240)

    def trained(kind: str, *most: int) -> list[Any]:
        for steps in most:
            model = model_of(name, table)
            batches = model.batches(table, 48)
            saves = RecCheckpoint(tmp_path / kind, every_steps=3, states=model.states)
            saves.restore(model, batches)
            summary = model.train(2, batches, saves, max_steps=steps, progress=False)
        return [summary.loss, *digests(model)]

    assert trained("cut", 4, 6) == trained("whole", 10)


# ---- evaluation, prediction and serving


def test_a_model_is_trained_evaluated_saved_and_served(tmp_path: Path, unique: Any) -> None:
    table, later = clicks(300), clicks(60, 1, first=1100)
    model = model_of(unique(), table)
    summary = model.fit(2, table, later, progress=False)
    assert np.isfinite(summary.loss) and len(summary.history) == 2
    before = digests(model)
    assert "auc" in model.eval(later, progress=False)
    asked = later.drop_columns(["clicked"])
    answers = model.predict(asked)
    assert digests(model) == before
    carried = with_lists(asked, table)
    np.testing.assert_array_equal(model.predict(carried), answers)
    # Of rows that are events, each row's history has the earlier ones.
    events = pa.concat_tables([table, later])
    after = model.predict_after(later)(asked)
    np.testing.assert_array_equal(after, model.predict(with_lists(asked, events)))
    assert (after != answers).any() and digests(model) == before
    # A user of whom nothing is known has an empty history; without time, all events are seen.
    unknown = asked.set_column(2, "user", pa.array(["nobody"] * len(asked)))
    nothing = with_lists(asked, table.slice(0, 0))
    np.testing.assert_array_equal(model.predict(unknown), model.predict(nothing))
    np.testing.assert_array_equal(model.predict(asked.drop_columns(["ts"])), answers)
    assert (model.predict(unknown) != answers).any()
    model.save(tmp_path / "run")
    for each in tables_of(model.predict_network):
        each.close()
    np.testing.assert_array_equal(load(tmp_path / "run").predict(asked), answers)
    with Predictor(tmp_path / "run", rows="int8") as predictor:
        assert predictor.network is not None
        looked_up = predictor.predict(asked)
        np.testing.assert_array_equal(looked_up, predictor.predict(carried))
        assert (looked_up != predictor.predict(unknown)).any()
    with Predictor(tmp_path / "run") as predictor:
        np.testing.assert_allclose(predictor.predict(asked)[:, 0], answers, atol=1e-6)
        np.testing.assert_allclose(predictor.predict(carried)[:, 0], answers, atol=1e-6)
        served = ServedModel("model", predictor, 1024)
        assert served.raw is not None and "recent" in (served.raw.names or ())
        bodies = [{"rows": asked.slice(0, 4).to_pylist()}, {"rows": carried[4:8].to_pylist()}]
        requests = [
            parse_request(json.dumps(body).encode(), served.inputs, served.outputs, raw=served.raw)
            for body in bodies
        ]
        futures = [served.batcher.submit(each.inputs) for each in requests]
        found = np.concatenate([future.result(60)[0][0][:, 0] for future in futures])
        np.testing.assert_allclose(found, answers[:8], atol=1e-6)
        with pytest.raises(ValueError, match="'recent' with their histories, or 'user'"):
            predictor.predict(asked.drop_columns(["user"]))
        served.batcher.close()


class Asks(Callback):
    """Asks a predictor of the training, once it has the version before the present step."""

    def __init__(self, path: Path, asked: pa.Table, steps: tuple[int, ...]) -> None:
        super().__init__()
        self.path, self.asked, self.steps = path, to_record_batch(asked), steps
        self.predictor: Predictor | None = None
        self.prices: dict[int, list[list[float]]] = {}

    def on_train_step_end(self, run_context: RunContext) -> None:
        version = run_context.original_args().cur_step_num - 1
        if version not in self.steps:
            return
        if self.predictor is None:
            self.predictor = Predictor(self.path, poll_seconds=0.02)
        deadline = time.monotonic() + 60
        while self.predictor.status().version < version and time.monotonic() < deadline:
            time.sleep(0.02)
        predictor = self.predictor
        assert predictor._maker is not None and predictor.features is not None
        tables = predictor._runner.tables
        arrays = predictor._maker(predictor.features, self.asked, tables)
        made = dict(zip(("ids", "numbers", *OF, "offsets"), arrays, strict=True))
        ends = [*made["offsets"].tolist(), len(made["price"])]
        self.prices[predictor.status().version] = [
            made["price"][a:b].tolist() for a, b in zip(ends, ends[1:], strict=False)
        ]

    def on_train_end(self, run_context: RunContext) -> None:
        assert self.predictor is not None
        self.predictor.close()


def test_a_predictor_looks_up_the_events_of_its_version(tmp_path: Path, unique: Any) -> None:
    table = clicks(240)
    model = model_of(unique(), table)
    stream = model.batches(source_of(table, 24, 10))
    asked = clicks(60, 1, first=2000).drop_columns(["clicked"])
    asks = Asks(tmp_path / "run", asked, (3, 5, 8))
    saves = RecCheckpoint(
        tmp_path / "run",
        every_steps=100,
        delta_every_steps=1,
        states=model.states,
        publication=model.publication,
    )
    model.online_train(stream, [asks, saves], progress=False)
    expected = {}
    for version in (3, 5, 8):
        rows = table.slice(0, 24 * version).to_pylist()
        expected[version] = [
            [each["price"] for each in rows if user is not None and each["user"] == user][-LENGTH:]
            for user in asked["user"].to_pylist()
        ]
    assert asks.prices == expected


def with_lists(rows: pa.Table, events: pa.Table) -> pa.Table:
    """Return rows that carry the histories of the events, the row's own user only."""
    lists: dict[str, list[Any]] = {"recent": [], "recent.ts": [], "recent.price": []}
    for row in rows.to_pylist():
        mine = [
            each
            for each in events.to_pylist()
            if row["user"] is not None and each["user"] == row["user"] and each["ts"] < row["ts"]
        ][-LENGTH:]
        for name, column in zip(lists, OF, strict=True):
            lists[name].append([each[column] for each in mine])
    kinds = {"recent.price": pa.list_(pa.float64())}
    for name, values in lists.items():
        rows = rows.append_column(name, pa.array(values, kinds.get(name, pa.list_(pa.int64()))))
    return rows.drop_columns(["user"])


def test_evicted_users_have_an_empty_history(unique: Any) -> None:
    table = clicks(240)
    model = model_of(unique(), table, eviction=5)
    stream = model.batches(source_of(table, 24, 10))
    assert model.schema is not None
    found = found_histories(stream.read(), table, model.schema)
    expected = plain_histories(table)
    gaps = [
        item for item, events in expected.items() if events and item_time(item) - events[-1][1] > 5
    ]
    assert gaps and all(found[item] == [] for item in gaps)
    state = model.predict_network.users[0]
    late = 1000 + 239 // 3 + 6
    state.set_event_time(late)
    state.evict_due()
    assert state.row_count == 0
    of_file = model_of(unique(), table, eviction=5)
    assert found_histories(of_file.batches(table, 60).read(), table, model.schema) == found


def item_time(item: int) -> int:
    return 1000 + item // 3


# ---- errors


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"of": "price2"},
            "column 'recent': of must be a column of kind category, integer, time, ",
        ),
        (
            {"by": "clicked"},
            "by must be a column of kind .*, got 'clicked', which is of kind 'label'",
        ),
        ({"only": "item"}, "only must be a column of kind label, got 'item'"),
        ({"length": 3000}, "must fit a row of 8192 floats"),
        ({"of": []}, "of must be different names, at least one"),
        ({"by": 7}, "by must be a text"),
        ({"eviction": 0}, "eviction must be"),
    ],
)
def test_wrong_columns_are_refused(columns: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"of": "item", "by": "user", **columns}
    with pytest.raises((ValueError, TypeError), match=message):
        Schema(
            [
                CategoryColumn("item"),
                CategoryColumn("user"),
                TimeColumn("ts"),
                KeptHistoryColumn("recent", **options),
                LabelColumn("clicked"),
            ]
        )


def test_a_kept_history_needs_a_time_and_one_process(unique: Any) -> None:
    columns = [CategoryColumn("item"), KeptHistoryColumn("recent", of="item", by="item")]
    with pytest.raises(ValueError, match="one column must be of kind 'time'"):
        Schema(columns)
    table = clicks(60)
    model = model_of(unique(), table)
    with pytest.raises(ValueError, match="kept from rows by one process, got 2 workers"):
        model.batches(table).split_by_worker(0, 2)


def test_yaml_and_a_feature_worker_take_a_kept_history(tmp_path: Path, unique: Any) -> None:
    table = clicks(240)
    schema = schema_of().fit(table)
    again = Schema.from_description(schema.describe())
    assert again.columns == schema.columns and again.inputs == schema.inputs
    channel = MemoryTopic()
    dataset = StreamingDataset(source_of(table, 24, 10), schema.with_times())
    FeatureWorker(dataset, DataSender(channel, sender_name="w"), tmp_path / "state").run()
    model = model_of(unique(), table)
    with DataReceiver(
        channel, batch_size=24, stop=StopWhen(batches=10, idle_seconds=0.3)
    ) as receiver:
        stream = StreamingDataset(receiver, schema.received())
        batches = model._arrays("train_dataset", stream, is_train=True)
        found = found_histories(batches.read(), table, schema)
    assert found == plain_histories(table)
