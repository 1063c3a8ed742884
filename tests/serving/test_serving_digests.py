# SPDX-License-Identifier: Apache-2.0
"""One number for trainer, checkpoints and predictors; and faults of one bit that it finds."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import CacheConfig, MapParameter, SsdConfig, _native
from mindspore_rec.common.run.chain import Entry, entries, entry_at, newest_chain, verify
from mindspore_rec.common.run.command import main
from mindspore_rec.common.run.digests import saved_digest, table_digest_at
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.live import AskServer, ServerBusyError, compare_live
from mindspore_rec.common.run.manifest import MANIFEST, write_manifest
from mindspore_rec.common.run.merge import merge_chain
from mindspore_rec.common.run.publish import Publisher
from mindspore_rec.common.tiers.ssd_command import verify as verify_ssd
from mindspore_rec.serving import Predictor
from mindspore_rec.ssd import SsdStore
from tests.serving.serving_network import Marked
from tests.support.http_server import ready_server
from tests.support.nightly import NIGHTLY

pytestmark = pytest.mark.usefixtures("graph_mode")

INPUTS = ["ids:INT64:-1,3"]
FAULTS = 1000 if NIGHTLY else 24


def asker(predictor: Predictor) -> AskServer:
    """Asks a predictor as its server would."""

    def ask(path: str, query: Mapping[str, Any]) -> Any:
        if path == "/status":
            found = predictor.status().to_json()
        elif "table" in query:
            found = predictor.row_digests(query["table"], query["part"], query["parts"]).to_json()
        else:
            found = predictor.digests(query["parts"]).to_json()
        return json.loads(json.dumps(found))

    return ask


def manifests(entry: Entry, **changed: Any) -> None:
    """Write a manifest anew, with other fields in its tables."""
    fields = {key: value for key, value in entry.manifest.items() if key != "format_version"}
    files = fields.pop("files")
    for table in fields["tables"].values():
        table.update(changed)
    (entry.path / MANIFEST).unlink()
    write_manifest(entry.path, fields, files)


def test_manifests_have_the_digest_of_the_state(run: Path, capsys) -> None:
    found = entries(run)
    assert {entry.kind for entry in found} == {"full", "delta"}
    for entry in found:
        chain = newest_chain(run, entry.step)
        for name, table in entry.manifest["tables"].items():
            assert saved_digest(table) == table_digest_at(chain, name).digest
    assert main(["verify", str(run)]) == 0
    assert "BAD" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["full", "delta"])
def test_a_wrong_digest_is_found(run: Path, capsys, kind: str) -> None:
    entry = [entry for entry in entries(run) if entry.kind == kind][-1]
    manifests(entry, digest="0123456789abcdef")
    assert main(["verify", str(run)]) == 1
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("BAD")]
    assert len(said) == 1 and entry.path.name in said[0]
    assert "table 'serving.one' has digest" in said[0] and "0123456789abcdef" in said[0]


def test_a_merged_state_is_held_to_the_trainers_digest(run: Path, tmp_path: Path) -> None:
    chain = newest_chain(run)
    assert chain[-1].kind == "delta"
    merge_chain(chain, tmp_path / "good")
    for table in entry_at(tmp_path / "good").manifest["tables"].values():
        assert saved_digest(table) is not None
    manifests(chain[-1], digest="0123456789abcdef")
    with pytest.raises(CheckpointError, match="had digest 0123456789abcdef in the trainer"):
        merge_chain(newest_chain(run), tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_manifests_without_digests_are_read(run: Path, tmp_path: Path) -> None:
    for entry in entries(run):
        for table in entry.manifest["tables"].values():
            table.pop("digest", None)
        manifests(entry)
    assert main(["verify", str(run)]) == 0
    merge_chain(newest_chain(run), tmp_path / "merged")
    with Predictor(run, Marked, inputs=INPUTS, follow=False) as predictor:
        assert all(table.same for table in compare_live(run, asker(predictor)))


def test_a_published_run_has_digests_of_the_same_numbers_only(run: Path, tmp_path: Path) -> None:
    for rows in ("same", "int8"):
        publisher = Publisher(run, tmp_path / rows, rows)
        publisher.publish(lambda path: None)
        publisher.close()
        assert main(["verify", str(tmp_path / rows)]) == 0
        last = entries(tmp_path / rows)[-1]
        said = {saved_digest(table) for table in last.manifest["tables"].values()}
        assert (said == {None}) == (rows == "int8")
        with Predictor(tmp_path / rows, Marked, inputs=INPUTS, rows="int8") as predictor:
            assert all(t.same for t in compare_live(tmp_path / rows, asker(predictor)))


@pytest.mark.parametrize("rows", ["float32", "int8", "int4", "ssd"])
def test_faults_of_one_bit_in_a_predictor_are_found_and_named(
    run: Path, tmp_path: Path, rows: str
) -> None:
    rng = np.random.default_rng(1)
    settings: dict[str, Any] = {"rows": rows}
    if rows == "ssd":
        settings = {"tiers": CacheConfig(host_rows=16, ssd=SsdConfig(tmp_path / "ssd"))}
    with Predictor(run, Marked, inputs=INPUTS, follow=False, **settings) as predictor:
        ask = asker(predictor)
        first = compare_live(run, ask)
        assert [table.name for table in first] == ["serving.one", "serving.two"]
        assert all(table.same and table.served.row_count == 50 for table in first)
        tables = predictor._runner.tables
        for _ in range(FAULTS // 4):
            name = str(rng.choice(list(tables)))
            table, key = tables[name], rng.integers(0, 50, 1)
            if rows in ("int8", "int4"):
                # No call sets a bit of a code; the nearest is the row of another value.
                values = table.read_rows(key) + np.float32(2.0 ** rng.integers(-8, 8))
                before = table.read_rows(key)
            else:
                values = before = table.read_rows(key)
                bits = values.copy().view(np.uint32)
                bits[0, rng.integers(bits.shape[1])] ^= np.uint32(1 << int(rng.integers(23)))
                values = bits.view(np.float32)
            table.import_rows(key, values)
            for found in compare_live(run, ask):
                wrong = {int(key[0])} if found.name == name else set()
                assert set(found.wrong) == wrong and found.same == (not wrong)
            table.import_rows(key, before)
        gone = np.array([7])
        tables["serving.one"].erase_rows(gone)
        named = {table.name: dict(table.wrong) for table in compare_live(run, ask)}
        assert named == {"serving.one": {7: "the server has no such row"}, "serving.two": {}}


def flip_in_redis(client: Any, bucket: bytes, field: bytes, at: int, bit: int) -> None:
    row = client.hget(bucket, field)
    client.hset(bucket, field, row[:at] + bytes([row[at] ^ 1 << bit]) + row[at + 1 :])


def test_faults_of_one_bit_in_redis_are_found_and_named(run: Path, redis_url: str) -> None:
    import redis

    rng = np.random.default_rng(4)
    client: Any = redis.Redis.from_url(redis_url)
    tiers = CacheConfig(host_rows=16, remote=redis_url)
    with Predictor(run, Marked, inputs=INPUTS, follow=False, tiers=tiers) as predictor:
        ask = asker(predictor)
        assert all(table.same and table.served.row_count == 50 for table in compare_live(run, ask))
        places: list[tuple[str, int, tuple[bytes, bytes]]] = []
        for name in predictor._runner.tables:
            rows: dict[int, tuple[bytes, bytes]] = {}
            for bucket in client.keys(f"emb{{*{name}/*}}v"):
                fields = [field for field in client.hkeys(bucket) if len(field) == 8]
                rows |= {int.from_bytes(each, "little"): (bucket, each) for each in fields}
            # A round over all rows reads older copies of rows in memory too.
            places += [(name, key, place) for key, place in rows.items()]
        assert len(places) >= 2 * (50 - 16)
        for _ in range(FAULTS):
            name, key, place = places[rng.integers(len(places))]
            size = len(client.hget(*place))
            fault = int(rng.integers(size)), int(rng.integers(8))
            flip_in_redis(client, *place, *fault)
            # Each row has a checksum, so that a damaged one is not even answered.
            with pytest.raises(_native.RowDamagedError, match=f"keys {key} do not") as error:
                compare_live(run, ask)
            assert f"table '{name}'" in str(error.value)
            flip_in_redis(client, *place, *fault)
        assert all(table.same for table in compare_live(run, ask))
    client.close()


def test_it_says_when_the_server_is_elsewhere(run: Path, tmp_path: Path) -> None:
    with Predictor(run, Marked, inputs=INPUTS, follow=False) as predictor:
        ask = asker(predictor)

        def other(path: str, query: Mapping[str, Any]) -> Any:
            return {**ask(path, query), "state": "0" * 16}

        with pytest.raises(CheckpointError, match="follows another run, or has gone on"):
            compare_live(run, other)
        with pytest.raises(ValueError, match="no version"):
            compare_live(run, lambda path, query: [])
        with pytest.raises(ValueError, match="no tables"):
            compare_live(run, lambda p, q: ask(p, q) if p == "/status" else {})
        for entry in entries(run):
            if entry.step >= 5:
                shutil.rmtree(entry.path)
        with pytest.raises(ValueError, match="no checkpoint of step 6"):
            compare_live(run, ask)


def test_a_server_that_is_busy_or_goes_on_is_asked_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mindspore_rec.common.run.live._PAUSE", 0.0)
    with Predictor(run, Marked, inputs=INPUTS, follow=False) as predictor:
        ask, asked = asker(predictor), []

        def busy(path: str, query: Mapping[str, Any]) -> Any:
            asked.append(path)
            if asked.count("/digests") == 1 and path == "/digests":
                raise ServerBusyError("429")
            if asked.count("/digests") == 2 and path == "/digests":
                return {**ask(path, query), "state": "0" * 16}
            return ask(path, query)

        assert all(table.same for table in compare_live(run, busy))
        assert asked == ["/status", "/digests"] * 3

        def without(path: str, query: Mapping[str, Any]) -> Any:
            found = ask(path, query)
            found.get("tables", {}).pop("serving.two", None)
            return found

        with pytest.raises(CheckpointError, match="the server has no table 'serving.two'"):
            compare_live(run, without)


def test_answers_and_updates_while_a_digest_is_read(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates wait for it, and answers for neither."""
    newest = entries(run)[-1]
    aside = run.parent / newest.path.name
    shutil.move(str(newest.path), str(aside))
    with Predictor(run, Marked, inputs=INPUTS, follow=False) as predictor:
        before = predictor.status().version
        reads, go_on, answered = threading.Event(), threading.Event(), threading.Event()
        digest = MapParameter.digest

        def slow(self: Any, parts: int = 1) -> Any:
            reads.set()
            go_on.wait(60)
            return digest(self, parts)

        def answer() -> None:
            predictor.predict(np.ones((2, 3), np.int64))
            answered.set()

        monkeypatch.setattr(MapParameter, "digest", slow)
        threads = [threading.Thread(target=predictor.digests)]
        threads[0].start()
        assert reads.wait(60)
        shutil.move(str(aside), str(newest.path))
        threads.append(threading.Thread(target=predictor.apply, args=(newest.path,)))
        threads[1].start()
        time.sleep(0.5)
        threads.append(threading.Thread(target=answer))
        threads[2].start()
        assert answered.wait(30)
        assert threads[1].is_alive() and predictor.status().version == before
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert predictor.status().version == newest.step > before


def test_faults_of_one_bit_in_checkpoint_files_are_found_and_named(run: Path) -> None:
    rng = np.random.default_rng(2)
    files = [path for entry in entries(run) for path in sorted(entry.path.iterdir())]
    for _ in range(FAULTS):
        path = files[rng.integers(len(files))]
        flip(path, rng)
        with pytest.raises(CheckpointError, match=path.name):
            verify(entry_at(path.parent))
        flip(path, rng, undo=True)
    for entry in entries(run):
        verify(entry)


def test_faults_of_one_bit_in_ssd_segments_are_found_and_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tier = tmp_path / "tier"
    keys = np.arange(2000)
    with SsdStore(tier, 48, segment_bytes=1 << 20, background_gc=False) as store:
        store.write(keys, rng.integers(0, 255, (2000, 48), np.uint8))
    segments = [path for path in sorted(tier.iterdir()) if path.stat().st_size > 1 << 14]
    first, last = 3 * 4096, 3 * 4096 + 2000 * 64  # where records lie, of 16 bytes and a row each
    for _ in range(FAULTS):
        path = segments[rng.integers(len(segments))]
        at = int(rng.integers(first, min(last, path.stat().st_size)))
        flip(path, rng, at)
        found = verify_ssd(tier)
        assert not found["ok"] and path.name in str(found["problems"])
        flip(path, rng, undo=True)
    assert verify_ssd(tier)["ok"]


UNDO: list[tuple[int, int]] = []


def flip(path: Path, rng: np.random.Generator, at: int = -1, undo: bool = False) -> None:
    """Flip one bit of a file, at a place by chance; or the last one back."""
    size = path.stat().st_size
    if undo:
        at, bit = UNDO.pop()
    else:
        at, bit = (int(rng.integers(size)) if at < 0 else at), int(rng.integers(8))
        UNDO.append((at, bit))
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
        file.flush()
        os.fsync(file.fileno())


def test_verify_sends_a_servers_token(exported: Path, tmp_path: Path) -> None:
    tokens, wrong = tmp_path / "tokens", tmp_path / "wrong"
    for path, token in ((tokens, "0123456789abcdef"), (wrong, "fedcba9876543210")):
        path.touch(0o600)
        path.write_text(f"# of the web shop\n\n{token}\n")
    with ready_server(exported, f"--token-file={tokens}") as server:
        command = ["verify", str(exported), f"--live=http://127.0.0.1:{server.port}"]
        assert main([*command, f"--token-file={tokens}"]) == 0
        with pytest.raises(OSError, match="401"):
            main([*command, f"--token-file={wrong}"])
    wrong.write_text("# none\n")
    with pytest.raises(ValueError, match="must have a token"):
        main([*command, f"--token-file={wrong}"])
