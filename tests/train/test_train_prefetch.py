# SPDX-License-Identifier: Apache-2.0
"""The prefetch stage: order, ends and errors of the source, which columns feed which table."""

from __future__ import annotations

import logging
import signal

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops
from mindspore.train import Callback

from mindspore_rec import (
    CacheConfig,
    EmbeddingBag,
    EmbeddingLookup,
    FeatureBatches,
    FeatureSpec,
    GroupedEmbedding,
    HashEmbeddingLookup,
    LazyAdam,
    MapParameter,
    RecModel,
    SsdConfig,
    TableConfig,
    tables_of,
)
from tests.support.native_table import native_of

FIELDS = 3
ROWS = 8
LABEL = np.zeros((ROWS, 1), np.float32)


class Lookups(nn.Cell):
    """Adds everything up: the lookups are what is tested."""

    def __init__(self, *lookups):
        super().__init__()
        self.first, self.last = lookups[0], lookups[-1]


class Net(Lookups):
    def construct(self, ids, label):
        return self.first(ids).sum() * 0.1 + label.sum()


class TwoTables(Lookups):
    def construct(self, ids, label):
        rows = self.first(ids[:, :2]).sum() + self.last(ids[:, 2]).sum()
        return rows * 0.1 + label.sum()


class SideBySide(Lookups):
    def construct(self, user, items, label):
        return self.first(ops.concat((user.reshape(-1, 1), items), 1)).sum() * 0.1 + label.sum()


class SecondColumn(Lookups):
    def construct(self, other, ids, label):
        return self.first(ids).sum() * 0.1 + other.sum() * 0.0 + label.sum()


class Doubled(Lookups):
    def construct(self, ids, label):
        return self.first(ids * 2).sum() * 0.1 + label.sum()


def cached(tmp_path, prefetch=2, host_rows=200):
    return CacheConfig(
        host_rows=host_rows, ssd=SsdConfig(tmp_path, direct=False), prefetch=prefetch
    )


def model_of(net):
    return RecModel(net, None, LazyAdam(net.trainable_params(), 0.1))


def ids_of(number, fields=FIELDS):
    """Keys that no other batch has."""
    return np.arange(ROWS * fields).reshape(ROWS, fields) + number * 1000


class Source:
    """Batches whose label is their number; knows how many were read."""

    def __init__(self, count, fails=False, reuse=False):
        self.count, self.fails, self.reuse = count, fails, reuse
        self.read = 0

    def __iter__(self):
        ids = np.zeros((ROWS, FIELDS), np.int64)
        label = np.zeros((ROWS, 1), np.float32)
        for number in range(self.count):
            self.read += 1
            if not self.reuse:
                ids, label = ids.copy(), label.copy()
            ids[:] = ids_of(number)
            label[:] = number
            yield ids, label
        if self.fails:
            raise OSError("the source is gone")


class Watch(Callback):
    """Which batch each step has, and how many have been read by then."""

    def __init__(self, source, stop_at=None):
        super().__init__()
        self.source, self.stop_at = source, stop_at
        self.numbers, self.read = [], []

    def on_train_step_begin(self, run_context):
        batch = run_context.original_args().train_dataset_element
        self.numbers.append(int(batch[-1].asnumpy()[0, 0]))
        self.read.append(self.source.read)

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == self.stop_at:
            run_context.request_stop()


def lookup_model(unique, tmp_path, prefetch=2, host_rows=200):
    lookup = HashEmbeddingLookup(
        2, ms.int64, name=unique(), cache=cached(tmp_path, prefetch, host_rows)
    )
    return model_of(Net(lookup)), lookup.embedding_table


def assert_no_pins(model, table):
    """With rows pinned, host memory would not come back below its limit."""
    many = [(ids_of(500 + number), LABEL) for number in range(40)]
    model.train(1, many, progress=False)
    stats = table.stats()
    assert stats["host_rows"] <= stats["host_capacity_rows"]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("online", [False, True])
def test_batches_keep_their_order(graph_mode, unique, tmp_path, prefetch, online):
    model, table = lookup_model(unique, tmp_path, prefetch)
    source = Source(10)
    watch = Watch(source)
    if online:
        summary = model.online_train(source, watch, sink_size=4, progress=False)
    else:
        summary = model.train(1, source, watch, progress=False)
    assert summary.steps == 10
    assert watch.numbers == list(range(10))
    # The first step shows which column feeds the table; from then on batches are read ahead.
    assert watch.read == [1, *(min(10, number + 1 + prefetch) for number in range(1, 10))]
    assert_no_pins(model, table)


def test_epochs_and_their_ends(graph_mode, unique, tmp_path):
    model, table = lookup_model(unique, tmp_path)
    source = Source(5)
    watch = Watch(source)
    model.train(3, source, watch, progress=False)
    assert watch.numbers == [0, 1, 2, 3, 4] * 3
    source = Source(5)
    watch = Watch(source)
    model.train(3, source, watch, sink_size=4, progress=False)
    assert watch.numbers == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert source.read == 12, "no more than the epochs take"
    assert_no_pins(model, table)


def test_no_batch_is_taken_that_is_not_trained(graph_mode, unique, tmp_path):
    model, table = lookup_model(unique, tmp_path, prefetch=3)
    source = Source(20)
    stream = iter(source)
    for expected in ([0, 1, 2, 3, 4, 5, 6], [7, 8, 9]):
        watch = Watch(source)
        model.online_train(stream, watch, max_steps=len(expected), progress=False)
        assert watch.numbers == expected
        assert source.read == expected[-1] + 1


def test_error_of_the_source_comes_after_the_batches_before_it(graph_mode, unique, tmp_path):
    model, table = lookup_model(unique, tmp_path)
    source = Source(6, fails=True)
    watch = Watch(source)
    with pytest.raises(OSError, match="the source is gone"):
        model.train(1, source, watch, progress=False)
    assert watch.numbers == [0, 1, 2, 3, 4, 5]
    assert table.step == 6
    assert_no_pins(model, table)


def test_a_stop_gives_up_what_was_read_ahead(graph_mode, unique, tmp_path):
    # Room for one batch beside those that are prefetched: a pin that stays would show.
    model, table = lookup_model(unique, tmp_path, prefetch=3, host_rows=100)
    for _ in range(4):
        source = Source(20)
        watch = Watch(source, stop_at=5)
        model.train(1, source, watch, progress=False)
        assert watch.numbers == [0, 1, 2, 3, 4]
        assert source.read == 8
    assert_no_pins(model, table)


def test_ctrl_c_while_reading_ahead(graph_mode, unique, tmp_path):
    class Pressed(Source):
        def __iter__(self):
            for batch in super().__iter__():
                if self.read == 8:
                    signal.raise_signal(signal.SIGINT)
                yield batch

    model, table = lookup_model(unique, tmp_path, prefetch=3, host_rows=100)
    source = Pressed(20)
    watch = Watch(source)
    summary = model.online_train(source, watch, progress=False)
    assert summary.interrupted
    # Waiting for a batch, no step is in hand: training ends, and three batches are given up.
    assert watch.numbers == [0, 1, 2, 3]
    assert source.read == 8
    assert_no_pins(model, table)


def test_an_error_in_a_step_gives_up_what_was_read_ahead(graph_mode, unique, tmp_path):
    class Fails(Callback):
        def on_train_step_end(self, run_context):
            if run_context.original_args().cur_step_num == 4:
                raise ArithmeticError("no more")

    model, table = lookup_model(unique, tmp_path, host_rows=100)
    for _ in range(3):
        with pytest.raises(ArithmeticError):
            model.train(1, Source(20), Fails(), progress=False)
    assert_no_pins(model, table)


def test_a_source_may_reuse_its_arrays(mode, unique, tmp_path):
    exported = []
    for prefetch, reuse in ((0, False), (3, True)):
        lookup = HashEmbeddingLookup(
            2, ms.int64, "ones", name=unique(), cache=cached(tmp_path, prefetch)
        )
        model = model_of(Net(lookup))
        watch = Watch(source := Source(8, reuse=reuse))
        model.train(1, source, watch, progress=False)
        assert watch.numbers == list(range(8))
        keys, values, _ = lookup.embedding_table.export_data()
        exported.append((keys[np.argsort(keys)], values[np.argsort(keys)]))
    for one, other in zip(*exported, strict=True):
        np.testing.assert_array_equal(one, other)


def test_event_time_is_that_of_the_batch_at_hand(graph_mode, unique, tmp_path):
    name = unique()
    lookup = HashEmbeddingLookup(2, ms.int64, name=name, cache=cached(tmp_path, 3, 100))
    specs = [FeatureSpec("ids", table_name=name), FeatureSpec("time", is_timestamp=True)]
    raw = [
        {"ids": ids_of(n % 8), "time": np.full(ROWS, 1000 + n), "label": LABEL} for n in range(16)
    ]

    class Times(Callback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def on_train_step_begin(self, run_context):
            self.seen.append(native_of(lookup.embedding_table).event_time)

    model, times = model_of(Net(lookup)), Times()
    model.train(1, FeatureBatches(raw, specs, [lookup.embedding_table]), times, progress=False)
    assert times.seen == [1000 + n for n in range(16)]
    assert lookup.embedding_table.stats()["prefetched_rows"] > 0


# ---- which column feeds which table


def hash_lookup(unique, tmp_path, dtype=ms.int64, host_rows=200):
    cache = cached(tmp_path, host_rows=host_rows)
    return HashEmbeddingLookup(2, dtype, name=unique(), cache=cache)


def whole(unique, tmp_path):
    return Net(hash_lookup(unique, tmp_path))


def int32(unique, tmp_path):
    return Net(hash_lookup(unique, tmp_path, ms.int32))


def static(unique, tmp_path):
    return Net(EmbeddingLookup(100_000, 2, name=unique(), cache=cached(tmp_path)))


def bag(unique, tmp_path):
    return Net(EmbeddingBag(TableConfig(2, name=unique(), cache=cached(tmp_path))))


def fields_of_two_tables(unique, tmp_path):
    return TwoTables(*(hash_lookup(unique, tmp_path, host_rows=60) for _ in range(2)))


def one_table_twice(unique, tmp_path):
    return TwoTables(hash_lookup(unique, tmp_path))


def grouped(unique, tmp_path):
    tables = [
        MapParameter(
            unique(), key_dtype=ms.int64, value_shape=2, cache=cached(tmp_path, host_rows=60)
        )
        for _ in range(FIELDS)
    ]
    return Net(GroupedEmbedding(tables))


@pytest.mark.parametrize(
    "make", [whole, int32, static, bag, fields_of_two_tables, one_table_twice, grouped]
)
def test_columns_are_found(graph_mode, unique, tmp_path, caplog, make):
    net = make(unique, tmp_path)
    model = model_of(net)
    dtype = np.int32 if make is int32 else np.int64
    rows = [ids_of(n).astype(dtype) for n in range(12)]
    # Twice the same: the second time everything has gone down, and comes up ahead of its step.
    batches = [(ids, LABEL) for ids in rows * 2]
    with caplog.at_level(logging.WARNING, "mindspore_rec"):
        model.train(1, batches, progress=False)
    assert warnings_of(caplog) == []
    for table in tables_of(net):
        stats = table.stats()
        assert stats["host_rows"] <= stats["host_capacity_rows"]
        assert stats["prefetched_rows"] > 0
        assert stats["host_misses"] == 0


def test_columns_beside_one_another_are_found(graph_mode, unique, tmp_path):
    lookup = hash_lookup(unique, tmp_path)
    net = SideBySide(lookup)
    rows = [ids_of(n) for n in range(12)]
    batches = [(ids[:, 0].copy(), ids[:, 1:].copy(), LABEL) for ids in rows * 2]
    model_of(net).train(1, batches, progress=False)
    stats = lookup.embedding_table.stats()
    assert stats["prefetched_rows"] > 0
    assert stats["host_misses"] == 0


def test_columns_that_are_equal_at_first_are_told_apart(graph_mode, unique, tmp_path):
    lookup = hash_lookup(unique, tmp_path)
    net = SecondColumn(lookup)
    same = [(ids_of(0), ids_of(0), LABEL)]
    rows = [ids_of(n) for n in range(12)]
    batches = same + [(np.full_like(ids, -7), ids, LABEL) for ids in rows * 2]
    model_of(net).train(1, batches, progress=False)
    stats = lookup.embedding_table.stats()
    assert stats["host_misses"] == 0
    assert not lookup.embedding_table.has_rows(np.array([-7]))[0]


def warnings_of(caplog):
    """Messages of the library: Kafka clients of earlier tests may still speak to the same log."""
    return [each.getMessage() for each in caplog.records if each.name.startswith("mindspore_rec")]


def computed(unique, tmp_path):
    lookup = hash_lookup(unique, tmp_path)
    return Doubled(lookup), lookup.embedding_table


def test_computed_ids_are_warned_of_and_trained(graph_mode, unique, tmp_path, caplog):
    net, table = computed(unique, tmp_path)
    batches = [(ids_of(n), LABEL) for n in range(12)] * 2
    with caplog.at_level(logging.WARNING, "mindspore_rec"):
        model_of(net).train(1, batches, progress=False)
    assert warnings_of(caplog) == [
        f"table '{table.name}': 1 of 1 lookups are of ids that are in no column of the batch, so "
        "their rows are not prefetched, and these lookups wait for the tiers below. Set "
        f"model.prefetch_ids = lambda *columns: {{'{table.name}': ids}}, or have "
        "CacheConfig(prefetch=0)."
    ]
    assert table.row_count == 12 * ROWS * FIELDS
    assert table.stats()["prefetched_rows"] == 0
    assert table.stats()["host_misses"] > 0


def test_computed_ids_can_be_given(graph_mode, unique, tmp_path, caplog):
    net, table = computed(unique, tmp_path)
    batches = [(ids_of(n), LABEL) for n in range(12)] * 2
    with caplog.at_level(logging.WARNING, "mindspore_rec"):
        model = model_of(net)
        model.prefetch_ids = lambda ids, label: {table.name: [ids[:, :1] * 2, ids[:, 1:] * 2]}
        model.train(1, batches, progress=False)
    assert warnings_of(caplog) == []
    assert table.stats()["prefetched_rows"] > 0
    assert table.stats()["host_misses"] == 0


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (7, TypeError, "prefetch_ids must be a function"),
        (lambda *columns: columns[0], TypeError, "prefetch_ids must return a dict, got ndarray"),
        (lambda *columns: {"x": columns[0]}, ValueError, "prefetch_ids must name tables"),
        (None, TypeError, "ids of '.*' must be int32 or int64, got float32"),
    ],
)
def test_wrong_prefetch_ids(graph_mode, unique, tmp_path, given, error, message):
    model, table = lookup_model(unique, tmp_path)
    if given is None:
        given = lambda ids, label: {table.name: label}  # noqa: E731
    model.prefetch_ids = given
    with pytest.raises(error, match=message):
        model.train(1, Source(3), progress=False)
    assert table.step == 0


def test_prefetch_ids_without_prefetch(graph_mode, unique, tmp_path):
    model, _ = lookup_model(unique, tmp_path, prefetch=0)
    model.prefetch_ids = lambda *columns: {}
    with pytest.raises(ValueError, match="prefetch_ids must be left out: no table has"):
        model.train(1, Source(3), progress=False)


@pytest.mark.parametrize("method", ["train", "fit", "online_train"])
def test_prefetch_ids_may_still_be_given_to_a_training(graph_mode, unique, tmp_path, method):
    model, table = lookup_model(unique, tmp_path)
    epochs = [] if method == "online_train" else [1]
    asked = []

    def ids_of_table(ids, label):
        asked.append(int(label[0, 0]))
        return {table.name: ids}

    old = {"prefetch_ids": ids_of_table}
    with pytest.warns(DeprecationWarning, match="set model.prefetch_ids before") as caught:
        getattr(model, method)(*epochs, Source(9), progress=False, **old)
    # Garbage of earlier tests, such as sockets that nobody closed, is collected meanwhile.
    deprecated = [each for each in caught if each.category is DeprecationWarning]
    assert [each.filename for each in deprecated] == [__file__]
    assert asked == list(range(9))
    assert model.prefetch_ids is None
