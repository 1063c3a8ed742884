# SPDX-License-Identifier: Apache-2.0
"""Faults of one bit in a row, whoever holds the rows: scrubber and digests name the row."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import (
    CacheConfig,
    HashEmbeddingLookup,
    LazyAdam,
    MapParameter,
    RecCheckpoint,
    RecModel,
    SsdConfig,
    _native,
    tables_of,
)
from mindspore_rec.common.columns.tensors import parsed_specs
from mindspore_rec.common.digests.scrub import Scrub
from mindspore_rec.common.rows.quantise import to_bytes
from mindspore_rec.common.run.chain import entries, entry_at, verify
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.live import compare_live
from mindspore_rec.common.run.network_file import NETWORK
from mindspore_rec.common.tiers.ssd_command import verify as verify_ssd
from mindspore_rec.serve.following.followed_run import FollowedRun
from mindspore_rec.serve.shared.writer import ServedInSharedMemory
from mindspore_rec.serving import Predictor
from mindspore_rec.ssd import SsdStore
from mindspore_rec.train.checkpoint.scrub import DigestedRows
from mindspore_rec.train.export.onnx import export_network
from tests.cache.trained_tiers import Training, flip as flip_in_file, records
from tests.parameter.test_digest import addresses_of, flip, keys_alike
from tests.serving.shared.test_serving_shared_scrub import places_of
from tests.serving.test_serving_digests import asker
from tests.support.nightly import NIGHTLY
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("graph_mode")

FAULTS = 1000 if NIGHTLY else 24
BETWEEN = 20  # faults, then a training over tiers goes on
DIM, KEYS, HOST = 8, 400, 64
NAME, BESIDE = "faults.rows", "faults.beside"
ALL = keys_alike(np.random.default_rng(50), KEYS)
PLACE = {key: place for place, key in enumerate(ALL.tolist())}
BITS = {"int8": 8, "int4": 4}
INPUTS = ["ids:INT64:-1,2"]
Fault = tuple[int, Callable[[], None]]


class Two(nn.Cell):
    """Rows of two tables."""

    def __init__(self) -> None:
        super().__init__()
        self.one = HashEmbeddingLookup(DIM, ms.int64, name=NAME, param_init="normal")
        self.two = HashEmbeddingLookup(2, ms.int64, name=BESIDE, param_init="normal")
        self.fc = nn.Dense(DIM + 2, 1)

    def construct(self, ids: Tensor) -> Tensor:
        return self.fc(ms.ops.concat((self.one(ids), self.two(ids)), -1).sum(1))


@dataclass
class Holder:
    """Rows somewhere: a way to damage them, and those who look at them."""

    fault: Callable[[], Fault]  # flips a bit; returns the row's key, and what flips it back
    expect: Callable[[Sequence[int]], None]  # fails unless just the rows of these keys are named
    how: str = ""  # what the log of a predictor says of a damaged row
    report: Callable[[], dict[str, Any]] | None = None  # of a predictor's scrubber
    others: list[Callable[[], None]] = field(default_factory=list)  # checks after all faults
    faults: int = FAULTS


@dataclass
class Setting:
    """Source of a holder: a trained run, the run's rows of `ALL`, a folder and a table's name."""

    path: Path
    values: np.ndarray
    run: Path
    redis: Callable[..., RedisServer]
    monkeypatch: pytest.MonkeyPatch
    name: str
    rng: np.random.Generator


@pytest.fixture(scope="module")
def trained_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, Path]:
    """The rows of `ALL` in the first table of a trained run, and the run."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Two()
    model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params(), 0.1))
    root = tmp_path_factory.mktemp("faults") / "run"
    batch = ALL.reshape(-1, 2), np.ones((KEYS // 2, 1), np.float32)
    checkpoint = RecCheckpoint(root, every_steps=3, delta_every_steps=1, data_starts_over=True)
    model.online_train([batch] * 3, checkpoint, progress=False)
    rows = next(t for t in tables_of(net) if t.name == NAME).read_rows(ALL)
    for table in tables_of(net):
        table.close()
    return rows, root


@pytest.fixture
def setting(
    trained_rows: tuple[np.ndarray, Path],
    tmp_path: Path,
    unique: Any,
    start_redis: Callable[..., RedisServer],
    monkeypatch: pytest.MonkeyPatch,
) -> Setting:
    rng = np.random.default_rng(1)
    return Setting(tmp_path, *trained_rows, start_redis, monkeypatch, unique(), rng)


@contextmanager
def own_memory(
    of: Setting, table: Any, keys: np.ndarray, values: np.ndarray, gap: int = 20
) -> Iterator[Callable[[], Fault]]:
    """Faults of a table in this process."""
    places = addresses_of(table, keys, values, gap)
    assert places.keys() == set(keys.tolist())
    with open("/proc/self/mem", "r+b", 0) as memory:

        def fault() -> Fault:
            key = int(of.rng.choice(keys))
            at = places[key] + int(of.rng.integers(values[0].nbytes))
            bit = 1 << int(of.rng.integers(8))
            flip(memory, at, bit)
            return key, lambda: flip(memory, at, bit)

        yield fault


# ---- a trainer


@contextmanager
def in_a_training(of: Setting, dtype: str) -> Iterator[Holder]:
    """Rows in memory, most of them trained; the rest written."""
    table = MapParameter(
        of.name, value_shape=16, key_dtype=ms.int64, value_dtype=getattr(ms, dtype)
    )
    native = table._synchronised()
    native.bind_optimizer("adam")
    keys = keys_alike(of.rng, 3000)
    native.put(keys, of.rng.standard_normal((3000, 16)).astype(np.float32))
    with pytest.raises(ValueError, match="keeps no digests"):
        table.damaged_rows()
    mark = native.mark()
    native.keep_digest()
    _, ticket = native.lookup_train(keys[:2000])
    native.accumulate(ticket, of.rng.standard_normal((2000, 16)).astype(np.float32))
    native.apply(0.1)
    native.export_since(mark)
    native.mark()
    some = np.array([*keys[:20], *keys[-20:]])
    values = native.lookup(some)
    if dtype == "bfloat16":
        values = (values.view(np.uint32) >> 16).astype(np.uint16)
    kept = native.kept_digest()
    scrub = Scrub(DigestedRows([table]), 1e-320)

    def expect(wanted: Sequence[int]) -> None:
        assert table.damaged_rows().tolist() == [*wanted]
        in_parts = [table.damaged_rows(part, 3).tolist() for part in range(3)]
        assert sorted(sum(in_parts, [])) == [*wanted]
        assert native.kept_digest() == kept
        assert (int(native.digest()[1][0]) == kept) == (not wanted)
        enough = scrub.rounds + 2
        try:
            while scrub.rounds < enough:
                scrub.turn(1.0)
            assert not wanted
        except RuntimeError as error:
            named = ", ".join(map(str, wanted))
            assert wanted and f"'{of.name}': the rows of keys {named} have changed" in str(error)

    def change() -> None:
        table.write_rows(some, table.read_rows(some) + 1)  # a row that is changed is not damaged
        assert len(table.damaged_rows()) == 0
        with pytest.raises(ValueError, match="part must be below parts"):
            table.damaged_rows(3, 3)

    of.monkeypatch.setattr("mindspore_rec.common.digests.scrub._MOST_SHARE", 1.0)
    with own_memory(of, native, some, values) as fault:
        yield Holder(fault, expect, others=[change], faults=2 * FAULTS + 2)
    table.close()


@contextmanager
def in_a_trainings_tier(of: Setting, tier: str) -> Iterator[Holder]:
    """Rows on Redis or an SSD, between steps of a training."""
    if tier == "redis":
        cache = CacheConfig(host_rows=HOST, remote=of.redis().url)
    else:
        cache = CacheConfig(host_rows=HOST, ssd=SsdConfig(of.path / "ssd", direct=False))
    training = Training(of.name, cache, of.monkeypatch)
    faults = training.faults(of.path, cache.remote or "")
    how: list[str] = []
    number = 0

    def fault() -> Fault:
        nonlocal number
        if number % BETWEEN == 0:
            training.finds_nothing()
            training.train(3)
            faults.look()
        number += 1
        key, undo, said = faults.make(of.rng)
        how[:] = [said]
        return key, undo

    def expect(wanted: Sequence[int]) -> None:
        if not wanted:
            if number % 4 == 0:
                training.finds_nothing()
            return
        said = training.finding()
        assert re.search(f"table '{of.name}': {how[0]}", said)
        assert "No checkpoint has them so" in said
        if number % 10 == 1:  # as a full checkpoint reads all rows
            with pytest.raises(_native.RowDamagedError, match=rf"keys? {wanted[0]}\b"):
                training.native.export_rows()

    def goes_on() -> None:
        training.finds_nothing()
        training.train(3)

    yield Holder(fault, expect, others=[goes_on], faults=FAULTS + 6)
    training.table.close()


# ---- a predictor


def until(of: Callable[[], dict[str, Any]], keys: Sequence[int]) -> None:
    """Wait until the damaged rows of a scrubber's report are these."""
    damaged = {NAME: sorted(keys)} if keys else {}
    deadline = time.monotonic() + 60
    while True:
        tables = of()["tables"].items()
        named = {name: table["damaged_keys"] for name, table in tables if table["damaged_rows"]}
        if named == damaged:
            return
        assert time.monotonic() < deadline, (named, damaged)
        time.sleep(0.001)


@contextmanager
def predictor_of(of: Setting, **settings: Any) -> Iterator[tuple[Predictor, Holder]]:
    """A predictor, and a holder without faults of its own."""
    with Predictor(
        of.run, Two, inputs=INPUTS, follow=False, scrub_seconds=1e-3, **settings
    ) as predictor:
        ask, table = asker(predictor), predictor._runner.tables[NAME]

        def report() -> dict[str, Any]:
            found = predictor.status().scrub
            assert found is not None
            return found

        def expect(keys: Sequence[int]) -> None:
            """The scrubber and the comparison with the checkpoint's files name the rows."""
            until(report, keys)
            if keys and "tiers" in settings:  # a damaged row is not even answered
                with pytest.raises(_native.RowDamagedError, match=rf"'{NAME}'.*keys? {keys[0]}\b"):
                    compare_live(of.run, ask)
                return
            live = {each.name: each for each in compare_live(of.run, ask)}
            assert live.keys() == {NAME, BESIDE} and live[BESIDE].same
            assert set(live[NAME].wrong) == set(keys) and live[NAME].same == (not keys)
            assert live[NAME].served.row_count == KEYS

        def written() -> None:
            """Rows of other values, of which no bit is damaged, and a row that is gone."""
            for _ in range(FAULTS // 4):
                key = of.rng.choice(ALL, 1)
                before = table.read_rows(key)
                if settings.get("rows") in BITS:  # no call sets a bit of a code
                    other = before + np.float32(2.0 ** of.rng.integers(-8, 8))
                else:
                    bits = before.copy().view(np.uint32)
                    bits[0, of.rng.integers(DIM)] ^= np.uint32(1 << int(of.rng.integers(23)))
                    other = bits.view(np.float32)
                table.import_rows(key, other)
                until(report, key.tolist())
                live = {each.name: dict(each.wrong) for each in compare_live(of.run, ask)}
                assert live[NAME].keys() == {int(key[0])} and not live[BESIDE]
                assert "at the server" in live[NAME][int(key[0])]
                table.import_rows(key, before)
                expect([])
            key = of.rng.choice(ALL, 1)
            table.erase_rows(key)
            until(report, key.tolist())
            live = {each.name: dict(each.wrong) for each in compare_live(of.run, ask)}
            assert live == {NAME: {int(key[0]): "the server has no such row"}, BESIDE: {}}

        holder = Holder(lambda: (0, lambda: None), expect, "", report, [written])
        yield predictor, holder


@contextmanager
def in_a_predictor(of: Setting, rows: str) -> Iterator[Holder]:
    with predictor_of(of, rows=rows) as (predictor, holder):
        drawn = of.rng.choice(KEYS, 12, replace=False)
        some = of.values[drawn] if rows == "float32" else to_bytes(of.values[drawn], BITS[rows])
        native = predictor._runner.tables[NAME]._synchronised()
        gap = 20 if rows == "float32" else 8
        with own_memory(of, native, ALL[drawn], some, gap) as holder.fault:
            holder.how = "it has another digest, in host memory"
            yield holder


def redis_places(name: str, client: Any) -> tuple[dict[int, int], Callable[..., None]]:
    """Return the size of each row on Redis, and a function that flips a bit of one."""
    places = {
        int.from_bytes(each, "little"): (bucket, each)
        for bucket in client.keys(f"emb{{*{name}/*}}v")
        for each in client.hkeys(bucket)
        if len(each) == 8
    }

    def change(key: int, at: int, bit: int) -> None:
        value = client.hget(*places[key])
        client.hset(*places[key], value[:at] + bytes([value[at] ^ bit]) + value[at + 1 :])

    return {key: len(client.hget(*place)) for key, place in places.items()}, change


def ssd_places(name: str, path: Path) -> tuple[dict[int, int], Callable[..., None]]:
    """Return the size of each row on an SSD, and a function that flips a bit of one."""
    (tier,) = {each.parent for each in (path / "ssd").rglob(f"*{name}*/**/*.seg")}
    places = records(tier, path / "copy")

    def change(key: int, at: int, bit: int) -> None:
        flip_in_file(places[key][0], places[key][1] + at, bit)

    return {key: size for key, (_, _, size) in places.items()}, change


@contextmanager
def in_a_predictors_tier(of: Setting, tier: str) -> Iterator[Holder]:
    if tier == "redis":
        import redis

        server = of.redis()
        client: Any = redis.Redis.from_url(server.url)
        tiers = CacheConfig(host_rows=HOST, remote=f"{server.url}?retry_seconds=1")
    else:
        tiers = CacheConfig(
            host_rows=HOST, ssd=SsdConfig(of.path / "ssd", direct=tier == "ssd direct")
        )
    with predictor_of(of, tiers=tiers) as (predictor, holder):
        table = predictor._runner.tables[NAME]
        table._synchronised().flush()
        sizes, change = redis_places(NAME, client) if tier == "redis" else ssd_places(NAME, of.path)
        below, copies = [], []
        for key in sorted(sizes):
            change(key, 30, 1)
            try:
                table.read_rows(np.array([key]))
                copies.append(key)
            except _native.RowDamagedError as error:
                assert re.search(rf"keys? {key},? do(es)? not match", str(error))
                below.append(key)
            change(key, 30, 1)
        assert len(below) == KEYS - HOST

        def fault() -> Fault:
            key = below[of.rng.integers(len(below))]
            at, bit = int(of.rng.integers(sizes[key])), 1 << int(of.rng.integers(8))
            change(key, at, bit)
            return key, lambda: change(key, at, bit)

        def away() -> None:
            """A tier that is away is no damage."""
            assert holder.report is not None
            server.kill()
            before = holder.report()["rounds"]
            time.sleep(1.0)
            until(holder.report, [])
            assert holder.report()["rounds"] <= before + 1

        holder.fault = fault
        holder.how = "do not match their checksums" if tier == "redis" else "is damaged at byte"
        if tier == "redis":
            holder.others = [away]
            for key in copies[:3]:  # older copies of rows in memory: a round reads them too
                change(key, 0, 1)
                with pytest.raises(_native.RowDamagedError, match=f"keys {key} do not"):
                    compare_live(of.run, asker(predictor))
                change(key, 0, 1)
        yield holder


@contextmanager
def in_memory_that_processes_share(of: Setting, rows: str) -> Iterator[Holder]:
    """As with `--workers`: the process that follows the run finds them."""
    net = Two()
    made = export_network(net, parsed_specs(INPUTS))
    for table in tables_of(net):
        table.close()
    root, copy = of.path / "follows", of.path / "copy"
    copy.mkdir()
    (root / NETWORK).mkdir(parents=True)
    made.write(root / NETWORK)
    last = next(entry for entry in entries(of.run) if (entry.step, entry.kind) == (3, "full"))
    shutil.copytree(last.path, root / last.path.name)
    fd = os.memfd_create("test")
    served = ServedInSharedMemory(root, copy, fd, rows)
    published = FollowedRun(root, served, 1.0, 0.1, scrub_seconds=1e-3)
    stored = of.values if rows == "float32" else to_bytes(of.values, BITS[rows])

    with mmap.mmap(fd, os.fstat(fd).st_size) as memory:

        def fault() -> Fault:
            key = int(of.rng.choice(ALL))
            at, bit = int(of.rng.integers(stored[0].nbytes)), 1 << int(of.rng.integers(8))
            copies = places_of(fd, memory, key, stored[PLACE[key]].tobytes())
            assert copies

            def change() -> None:
                for place in copies:
                    memory[place + at] ^= bit

            change()
            return key, change

        def report() -> dict[str, Any]:
            assert published._scrubber is not None
            return published._scrubber.report()

        how = "it has another digest, in shared memory"
        yield Holder(fault, lambda keys: until(report, keys), how, report)
    published.close()
    os.close(fd)


# ---- files


@contextmanager
def in_files(of: Setting, kind: str) -> Iterator[Holder]:
    """The files of a run or an SSD tier: the commands that verify them name the file."""
    if kind == "checkpoints":
        run = of.path / "run"
        shutil.copytree(of.run, run)
        assert {entry.kind for entry in entries(run)} == {"full", "delta"}
        files = [path for entry in entries(run) for path in sorted(entry.path.iterdir())]
        first, last = 0, 1 << 62
    else:
        keys = np.arange(2000)
        with SsdStore(of.path / "tier", 48, segment_bytes=1 << 20, background_gc=False) as store:
            store.write(keys, of.rng.integers(0, 255, (2000, 48), np.uint8))
        files = [
            each for each in sorted((of.path / "tier").iterdir()) if each.stat().st_size > 1 << 14
        ]
        first, last = 3 * 4096, 3 * 4096 + 2000 * 64  # records, of 16 bytes and a row each

    def fault() -> Fault:
        number = int(of.rng.integers(len(files)))
        at = int(of.rng.integers(first, min(last, files[number].stat().st_size)))
        bit = 1 << int(of.rng.integers(8))
        flip_in_file(files[number], at, bit)
        return number, lambda: flip_in_file(files[number], at, bit)

    def expect(wanted: Sequence[int]) -> None:
        if kind == "segments":
            found = verify_ssd(of.path / "tier")
            assert found["ok"] == (not wanted)
            assert all(files[number].name in str(found["problems"]) for number in wanted)
            return
        for number in wanted:
            with pytest.raises(CheckpointError, match=files[number].name):
                verify(entry_at(files[number].parent))
        for entry in [] if wanted else entries(run):
            verify(entry)

    yield Holder(fault, expect)


HOLDERS: dict[str, tuple[Callable[..., Any], str]] = {
    "training float32": (in_a_training, "float32"),
    "training bfloat16": (in_a_training, "bfloat16"),
    "training ssd": (in_a_trainings_tier, "ssd"),
    "training redis": (in_a_trainings_tier, "redis"),
    "predictor float32": (in_a_predictor, "float32"),
    "predictor int8": (in_a_predictor, "int8"),
    "predictor int4": (in_a_predictor, "int4"),
    "predictor ssd": (in_a_predictors_tier, "ssd"),
    "predictor ssd direct": (in_a_predictors_tier, "ssd direct"),
    "predictor redis": (in_a_predictors_tier, "redis"),
    "processes float32": (in_memory_that_processes_share, "float32"),
    "processes int8": (in_memory_that_processes_share, "int8"),
    "processes int4": (in_memory_that_processes_share, "int4"),
    "checkpoint files": (in_files, "checkpoints"),
    "ssd files": (in_files, "segments"),
}


@pytest.mark.parametrize(
    "holder",
    [pytest.param(each, marks=[pytest.mark.redis] * ("redis" in each)) for each in HOLDERS],
)
def test_each_row_is_named(setting: Setting, holder: str, caplog: pytest.LogCaptureFixture) -> None:
    """A changed bit names the row, once; changed back it does not; others are as they were."""
    where, kind = HOLDERS[holder]
    with where(setting, kind) as rows:
        rows.expect([])
        caplog.clear()
        keys = []
        for _ in range(rows.faults):
            key, undo = rows.fault()
            rows.expect([key])
            undo()
            rows.expect([])
            keys.append(key)
        if rows.report is not None:
            errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
            assert len(errors) == FAULTS  # each once, however many rounds find it
            for key, text in zip(keys, errors, strict=True):
                assert f"table '{NAME}'" in text and f"key {key}: " in text and rows.how in text
            some: dict[int, Callable[[], None]] = {}
            while len(some) < 5:
                key, undo = rows.fault()
                if key in some:
                    undo()
                else:
                    some[key] = undo
            until(rows.report, [*some])
            done, report = rows.report()["rounds"], rows.report
            wait_until(lambda: report()["rounds"] > done + 1)  # the others are compared too
            for undo in some.values():
                undo()
            rows.expect([])
            said = rows.report()
            figures = said["tables"][NAME]
            assert figures["scrubbed_rows"] >= KEYS * said["rounds"] > KEYS * FAULTS // 2
            assert figures["digest_bytes"] > 0 and said["seconds"] == 1e-3
        for check in rows.others:
            check()
