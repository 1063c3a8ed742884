# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that were made up: refused by one exception, and nothing else happens.

Sizes and checksums are right: what is wrong is the contents.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mindspore_rec import CheckpointError, RecCheckpoint, load_checkpoint, tables_of
from mindspore_rec.common.run.chain import chain_at, entries, newest_chain, verify_chain
from mindspore_rec.common.run.command import main
from mindspore_rec.common.run.diff import difference
from mindspore_rec.common.run.export import export_table
from mindspore_rec.common.run.merge import merge_chain
from mindspore_rec.common.run.table_file import write_keys
from mindspore_rec.serving import Predictor
from tests.checkpoint.hostile_checkpoint import (
    MANIFEST,
    Cell,
    Noise,
    close,
    copy,
    fix,
    make_run,
    replace,
    write_manifest,
)
from tests.fuzz.mutate import mutate_bytes, mutate_json
from tests.support.native_table import native_of
from tests.support.settings import SETTINGS

FULL, DELTA, LAST = "000000000000.full", "000000000002.delta", "000000000004.delta"
COUNT = SETTINGS.file_changes
EACH = 6  # every so many are used in all ways, the others are verified and loaded


class Sandbox:
    """A place with a good run, room for a changed one, and a file that nobody may touch."""

    def __init__(self, path: Path) -> None:
        self.path, self.good, self.root = path, path / "good", path / "run"
        self.foreign = path / "outside" / "table_0.arrow"
        self.foreign.parent.mkdir(parents=True)
        make_run(self.good, "hostile")
        self.cell = Cell("hostile")
        load_checkpoint(self.cell, self.good)
        self.tables = [table.name for table in tables_of(self.cell)]

    def fresh(self) -> Path:
        """A copy of the good run to be changed."""
        self.foreign.write_bytes(b"foreign")
        return copy(self.good, self.root)

    def state(self) -> list[bytes]:
        """All bits that loading can change."""
        found = [self.cell.dense.asnumpy().tobytes()]
        for table in tables_of(self.cell):
            native = native_of(table)
            rows = native.export_rows(with_state=True)
            order = np.argsort(rows["keys"])
            found += [np.ascontiguousarray(rows[name][order]).tobytes() for name in sorted(rows)]
            found += [native.export_sketch(), str((native.step, native.event_time)).encode()]
            counters = native.export_counters()
            order = np.argsort(counters["keys"])
            found += [counters[name][order].tobytes() for name in sorted(counters)]
        return found

    def uses(self) -> dict[str, Callable[[], Any]]:
        """What one does with a run."""
        out = self.path / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

        def export() -> None:
            for table in self.tables:
                export_table(chain_at(self.root), table, out / f"{table}.csv", with_state=True)

        def predict() -> None:
            Predictor(self.root, self.cell, follow=False, wait_seconds=0).close()

        return {
            "verify": lambda: verify_chain(entries(self.root)),
            "ls": lambda: quiet("ls", self.root),
            "diff": lambda: difference(chain_at(self.root), chain_at(self.good)),
            "merge": lambda: merge_chain(chain_at(self.root), out / "merged"),
            "export": export,
            "load": lambda: load_checkpoint(self.cell, self.root),
            "predict": predict,
        }

    def try_all(self, what: str, few: bool = False) -> dict[str, Exception | None]:
        """Uses the changed run in each way, or in a few; what each raised."""
        found: dict[str, Exception | None] = {}
        outside = tree(self.path)
        uses = self.uses()
        for name in ("verify", "load") if few else uses:
            use = uses[name]
            before = self.state() if name in ("load", "predict") else []
            try:
                use()
                found[name] = None
            except CheckpointError as error:
                found[name] = error
                assert str(self.path) in str(error) or "table '" in str(error), (what, name, error)
                assert len(str(error)) < 5000
                if before:
                    assert self.state() == before, (what, name, error)
            except Exception as error:
                raise AssertionError(f"{name} after {what}: {error!r}") from error
            assert self.foreign.read_bytes() == b"foreign", (what, name)
            assert tree(self.path) == outside, (what, name)
        if found["load"] is None and found.get("merge", found["load"]) is None and not few:
            # One chain is one state, whichever way it is read.
            load_checkpoint(self.cell, self.root)
            loaded = self.state()
            load_checkpoint(self.cell, self.path / "out" / "merged")
            assert self.state() == loaded, what
        return found


def tree(root: Path) -> set[str]:
    """All paths but those below the place for results."""
    found = set()
    for directory, _, files in os.walk(root):
        if Path(directory).parts[len(root.parts) :][:1] != ("out",):
            found |= {os.path.join(directory, each) for each in files}
    return found


def quiet(*arguments: Any) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        main([str(each) for each in arguments])


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path_factory.mktemp("hostile"))
    yield made
    close(made.cell)


def test_the_good_run_is_good(sandbox: Sandbox) -> None:
    sandbox.fresh()
    assert set(sandbox.try_all("nothing").values()) == {None}
    files = {path.name for path in sandbox.good.glob("*/*")}
    assert files == {
        MANIFEST, "dense.safetensors", "states.json", "states.safetensors",
        *(f"{kind}_{i}.arrow" for kind in ("table", "deleted") for i in range(3)),
        "counters_0.arrow", "counters_1.sketch",
    }  # fmt: skip


# ---- anything at all


@pytest.mark.parametrize("directory", [FULL, DELTA, LAST])
def test_any_manifest(sandbox: Sandbox, directory: str) -> None:
    rng = random.Random(directory)
    refused = 0
    for i in range(COUNT):
        path = sandbox.fresh() / directory
        manifest = json.loads((path / MANIFEST).read_text())
        changed = manifest
        for _ in range(rng.choice([1, 1, 1, 2])):
            changed = mutate_json(changed, rng, [str(sandbox.foreign)])
        with contextlib.suppress(RecursionError):
            write_manifest(path, changed)
        found = sandbox.try_all(f"change {i} of {path / MANIFEST}", few=i % EACH > 0)
        refused += found["verify"] is not None
    assert refused > COUNT // 2


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        (FULL, "table_0.arrow"), (LAST, "table_0.arrow"), (FULL, "table_2.arrow"),
        (DELTA, "deleted_0.arrow"), (LAST, "counters_0.arrow"), (LAST, "counters_1.sketch"),
        (LAST, "dense.safetensors"), (LAST, "states.safetensors"),
    ],
)  # fmt: skip
def test_any_bytes(sandbox: Sandbox, directory: str, name: str) -> None:
    rng = random.Random(f"{directory}{name}")
    refused = 0
    for i in range(COUNT):
        path = sandbox.fresh() / directory / name
        replace(path, mutate_bytes(path.read_bytes(), rng))
        fix(path.parent)
        found = sandbox.try_all(f"change {i} of {path}", few=i % EACH > 0)
        refused += found["load"] is not None
    assert refused > COUNT // 6


def test_any_states(sandbox: Sandbox) -> None:
    rng, restored = random.Random(5), 0
    for i in range(COUNT):
        path = sandbox.fresh() / LAST / "states.json"
        with contextlib.suppress(RecursionError):
            changed = mutate_json(json.loads(path.read_text()), rng, [])
            replace(path, json.dumps(changed).encode())
        fix(path.parent)
        sandbox.try_all(f"change {i} of {path}", few=i % EACH > 0)
        before = sandbox.state()
        restoring = RecCheckpoint(sandbox.root, every_steps=9, states={"noise": Noise()})
        try:
            restored += restoring.restore(sandbox.cell) is not None
        except ValueError as error:
            assert str(path) in str(error) or "those that were saved" in str(error)
            assert sandbox.state() == before, error
    assert COUNT // 10 < restored < COUNT


# ---- what an attacker would do


def change(sandbox: Sandbox, directory: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    path = sandbox.fresh() / directory
    manifest = json.loads((path / MANIFEST).read_text())
    edit(manifest)
    write_manifest(path, manifest)


def all_refuse(sandbox: Sandbox, words: str, but: tuple[str, ...] = ()) -> None:
    for name, error in sandbox.try_all(words).items():
        if name not in but:
            assert error is not None and words in str(error), (name, error)


def renamed(kind: str, name: str) -> Callable[[dict[str, Any]], None]:
    def edit(manifest: dict[str, Any]) -> None:
        table = manifest["tables"]["hostile.count"]
        manifest["files"][name] = manifest["files"].pop(table[kind])
        table[kind] = name

    return edit


@pytest.mark.parametrize("kind", ["file", "deleted", "counters"])
@pytest.mark.parametrize(
    "name",
    ["{foreign}", "../../outside/table_0.arrow", "../x.arrow", "sub/table_0.arrow", "..", ""],
)
def test_names_that_lead_outside(sandbox: Sandbox, kind: str, name: str) -> None:
    name = name.format(foreign=sandbox.foreign)
    change(sandbox, LAST, renamed(kind, name))
    all_refuse(sandbox, "files must be names", but=("predict",))
    change(sandbox, LAST, lambda m: m["files"].update({name: {"size": 7, "crc32c": 1}}))
    all_refuse(sandbox, "files must be names", but=("predict",))


@pytest.mark.parametrize("name", ["manifest.json", "dense.safetensors", "table_1.arrow"])
def test_names_of_other_files(sandbox: Sandbox, name: str) -> None:
    def edit(manifest: dict[str, Any]) -> None:
        manifest["tables"]["hostile.count"]["file"] = name

    change(sandbox, LAST, edit)
    all_refuse(sandbox, "file must be a", but=("predict",))


@pytest.mark.parametrize("name", ["table_0.arrow", "states.json", "dense.safetensors", MANIFEST])
def test_links(sandbox: Sandbox, name: str) -> None:
    path = sandbox.fresh() / LAST / name
    beside = sandbox.path / "out" / "beside"
    beside.parent.mkdir(exist_ok=True)
    shutil.copy(path, sandbox.path / "beside")
    path.unlink()
    path.symlink_to(sandbox.path / "beside")
    all_refuse(sandbox, f"{name} is a link", but=("ls", "predict"))
    (sandbox.path / "beside").unlink()
    path.unlink()
    os.mkfifo(path)
    all_refuse(sandbox, f"{name} is no file", but=("ls", "predict"))


@pytest.mark.parametrize("depth", [2_000, 100_000])
@pytest.mark.parametrize("name", [MANIFEST, "states.json"])
def test_deep_nesting(sandbox: Sandbox, name: str, depth: int) -> None:
    path = sandbox.fresh() / LAST / name
    text = path.read_text().rstrip()
    replace(path, (text[:-1] + ', "x": ' + "[" * depth + "]" * depth + "}").encode())
    if name == MANIFEST:
        all_refuse(sandbox, str(path), but=("predict",))
    else:
        fix(path.parent)
        found = sandbox.try_all(name)
        assert (found["verify"] is not None) == (depth > 10_000)


def test_integers_of_many_digits(sandbox: Sandbox) -> None:
    path = sandbox.fresh() / LAST / MANIFEST
    replace(path, path.read_bytes().replace(b'"step": 4,', b'"step": ' + b"4" * 5000 + b",", 1))
    all_refuse(sandbox, str(path), but=("predict",))


@pytest.mark.parametrize("rows", [1 << 40, 10_000])
def test_rows_that_there_is_no_room_for(sandbox: Sandbox, rows: int) -> None:
    change(sandbox, FULL, lambda m: m["tables"]["hostile.count"].update(rows=rows))
    all_refuse(sandbox, "which the file has room for")


def test_deltas_of_another_optimizer_that_lack_rows(sandbox: Sandbox) -> None:
    path = sandbox.fresh() / LAST
    with pa.memory_map(str(path / "table_0.arrow")) as source:
        whole = pa.ipc.open_file(source).read_all()
    write(path / "table_0.arrow", whole.drop_columns("state"))
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["tables"]["hostile.count"]["state_width"] = 0
    write_manifest(path, manifest)
    fix(path)
    found = sandbox.try_all("another optimizer")
    for name in ("diff", "merge", "export", "load"):
        assert found[name] is not None, name


# ---- files of Arrow


def write(path: Path, table: pa.Table, compression: str | None = None, **more: Any) -> None:
    path.unlink()
    options = pa.ipc.IpcWriteOptions(compression=compression, **more)
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=options) as w,
    ):
        w.write_table(table)


def arrow_changes() -> dict[str, Callable[[pa.Table], Any]]:
    def other(name: str, values: Any) -> Callable[[pa.Table], pa.Table]:
        return lambda table: table.set_column(
            table.column_names.index(name), name, values(table[name].combine_chunks())
        )

    def keys(edit: Callable[[np.ndarray], np.ndarray]) -> Callable[[pa.Table], pa.Table]:
        return other("key", lambda column: pa.array(edit(column.to_numpy().copy()), pa.int64()))

    return {
        "null keys": other("key", lambda c: pa.array([None, *c.to_pylist()[1:]], pa.int64())),
        "null values": other("value", lambda c: pa.array([None, *c.to_pylist()[1:]], c.type)),
        "null in a value": other(
            "value", lambda c: pa.array([[None] * 3, *c.to_pylist()[1:]], c.type)
        ),
        "text keys": other("key", lambda c: c.cast(pa.string())),
        "dictionary": other("count", lambda c: c.dictionary_encode()),
        "short values": other("value", lambda c: pa.array(c.to_pylist(), pa.list_(pa.float32()))),
        "wide values": other("value", lambda c: pa.array(c.to_pylist(), pa.list_(pa.float64(), 3))),
        "no count": lambda table: table.drop_columns("count"),
        "another column": lambda table: table.append_column("more", table["count"]),
        "repeated keys": keys(lambda k: np.r_[k[:1], k[:-1]]),
        "keys in disorder": keys(lambda k: k[::-1]),
        "fewer rows": lambda table: table.slice(1),
        "repeated rows": lambda table: pa.concat_tables([table, table]),
    }


@pytest.mark.parametrize("name", arrow_changes())
def test_other_arrow_files(sandbox: Sandbox, name: str) -> None:
    path = sandbox.fresh() / FULL / "table_0.arrow"
    with pa.memory_map(str(path)) as source:
        whole = pa.ipc.open_file(source).read_all()
    write(path, arrow_changes()[name](whole))
    fix(path.parent)
    all_refuse(sandbox, str(path), but=("ls",))


@pytest.mark.parametrize("name", ["table_1.arrow", "table_2.arrow"])
@pytest.mark.parametrize(("place", "key"), [(-1, 1 << 31), (0, -(1 << 31) - 1)])
def test_keys_that_the_table_cannot_have(sandbox: Sandbox, name: str, place: int, key: int) -> None:
    path = sandbox.fresh() / FULL / name
    with pa.memory_map(str(path)) as source:
        whole = pa.ipc.open_file(source).read_all()
    keys = whole["key"].to_numpy().copy()
    keys[place] = key
    write(path, whole.set_column(0, "key", pa.array(keys)))
    fix(path.parent)
    all_refuse(sandbox, f"{name} is damaged: it has keys from", but=("ls",))


def test_deleted_keys_in_disorder(sandbox: Sandbox) -> None:
    path = sandbox.fresh() / LAST / "deleted_0.arrow"
    path.unlink()
    write_keys(np.array([5, 5, 7]), path)
    manifest = json.loads((path.parent / MANIFEST).read_text())
    manifest["tables"]["hostile.count"]["deleted_rows"] = 3
    write_manifest(path.parent, manifest)
    fix(path.parent)
    all_refuse(sandbox, "deleted_0.arrow is damaged: its keys", but=("ls", "predict"))


# ---- memory


def peak() -> int:
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) << 10


def grown(work: Callable[[], Any]) -> int:
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    work()
    return peak() - before


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("rows", ["as they are", "none", "as there is room for"])
def test_compressed_files_are_not_decoded(sandbox: Sandbox, compression: str, rows: str) -> None:
    path = sandbox.fresh() / FULL / "table_0.arrow"
    with pa.memory_map(str(path)) as source:
        schema = pa.ipc.open_file(source).schema
    count = 2_000_000
    columns = [
        pa.FixedSizeListArray.from_arrays(
            pa.array(np.zeros(count * field.type.list_size, np.float32)), type=field.type
        )
        if pa.types.is_fixed_size_list(field.type)
        else pa.array(np.arange(count) if field.name == "key" else np.zeros(count), field.type)
        for field in schema
    ]
    whole = pa.Table.from_arrays(columns, schema=schema)
    if rows == "as there is room for":  # few enough for the manifest
        whole = whole.slice(0, 2000)
    write(path, whole, compression)
    size = path.stat().st_size
    manifest = json.loads((path.parent / MANIFEST).read_text())
    said = {"as they are": count, "none": 0, "as there is room for": min(2000, size // 56)}[rows]
    manifest["tables"]["hostile.count"]["rows"] = said
    del columns, whole
    write_manifest(path.parent, manifest)
    fix(path.parent)
    assert grown(lambda: all_refuse(sandbox, str(path.parent), but=("ls",))) < (30 << 20)


def test_a_small_compressed_file(sandbox: Sandbox) -> None:
    path = sandbox.fresh() / FULL / "table_0.arrow"
    with pa.memory_map(str(path)) as source:
        whole = pa.ipc.open_file(source).read_all()
    write(path, whole, "zstd")
    fix(path.parent)
    all_refuse(sandbox, "", but=("ls",))


def header(path: Path, edit: Callable[[dict[str, Any]], Any], length: int | None = None) -> None:
    """Another header of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    found = json.loads(data[8 : 8 + size])
    edit(found)
    text = json.dumps(found).encode()
    replace(
        path, struct.pack("<Q", len(text) if length is None else length) + text + data[8 + size :]
    )
    fix(path.parent)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [1 << 62, 1 << 62]},
        {"shape": [1 << 40]},
        {"shape": [-1]},
        {"shape": [0, 1 << 63]},
        {"shape": []},
        {"data_offsets": [0, 1 << 62]},
        {"data_offsets": [24, 0]},
        {"data_offsets": [1, 25]},
        {"dtype": "BF16", "shape": [4, 3]},
        {"dtype": "F99"},
        {"dtype": 5},
        {"dtype": "I32"},
        {"shape": [3, 2]},
    ],
)
def test_headers_of_arrays(sandbox: Sandbox, change: dict[str, Any]) -> None:
    path = sandbox.fresh() / LAST / "dense.safetensors"
    header(path, lambda found: found["dense"].update(change))
    found = sandbox.try_all(str(change))
    assert found["load"] is not None and str(path) in str(found["load"])


@pytest.mark.parametrize("length", [10**9, 1 << 63, 0, 3])
def test_lengths_of_headers(sandbox: Sandbox, length: int) -> None:
    path = sandbox.fresh() / LAST / "dense.safetensors"
    header(path, lambda found: None, length)
    assert grown(lambda: all_refuse(sandbox, str(path), but=("ls", "predict"))) < (30 << 20)


def test_overlapping_arrays(sandbox: Sandbox) -> None:
    path = sandbox.fresh() / LAST / "dense.safetensors"
    header(path, lambda found: found.update(more=found["dense"]))
    all_refuse(sandbox, str(path), but=("ls", "predict"))


@pytest.mark.parametrize("length", [1 << 62, 1 << 63])
def test_an_empty_array_of_a_shape_that_no_array_can_have(sandbox: Sandbox, length: int) -> None:
    path = sandbox.fresh() / LAST / "dense.safetensors"
    end = path.stat().st_size - 8 - int.from_bytes(path.read_bytes()[:8], "little")
    more = {"dtype": "F32", "shape": [0, length], "data_offsets": [end, end]}
    header(path, lambda found: found.update(more=more))
    all_refuse(sandbox, str(path), but=("ls", "predict"))


def test_names_that_a_terminal_obeys(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    def edit(manifest: dict[str, Any]) -> None:
        manifest["tables"]["\x1b[2J\ud800"] = manifest["tables"].pop("hostile.count")

    root = sandbox.fresh()
    for directory in (FULL, DELTA, LAST):
        path = root / directory
        manifest = json.loads((path / MANIFEST).read_text())
        edit(manifest)
        write_manifest(path, manifest)
    assert main(["diff", str(root), str(sandbox.good)]) == 1
    printed = capsys.readouterr().out
    assert "\\x1b[2J\\ud800" in printed and "\x1b" not in printed
    assert newest_chain(root)
