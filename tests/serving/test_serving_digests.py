# SPDX-License-Identifier: Apache-2.0
"""One number for trainer, checkpoints and predictors."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import MapParameter
from mindspore_rec.common.run.chain import Entry, entries, entry_at, newest_chain
from mindspore_rec.common.run.command import main
from mindspore_rec.common.run.digests import saved_digest, table_digest_at
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.live import AskServer, ServerBusyError, compare_live
from mindspore_rec.common.run.manifest import MANIFEST, write_manifest
from mindspore_rec.common.run.merge import merge_chain
from mindspore_rec.common.run.publish import Publisher
from mindspore_rec.serving import Predictor
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
