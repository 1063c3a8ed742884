# SPDX-License-Identifier: Apache-2.0
"""The Criteo reader against a reader of one line at a time."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings, strategies as st

from datasets.common import batches
from datasets.criteo import convert
from datasets.criteo.lines import pieces
from datasets.criteo.parse import BAD_REASONS
from datasets.criteo.reader import CriteoReader, ReadReport
from datasets.criteo.schema import CATEGORY_FIELDS, COUNT_FIELDS, bin_counts, scale_counts
from mindspore_rec.common.columns.hashing import category_keys, missing_key
from tests.support.nightly import examples

GOOD = b"\t".join([b"1", *[b"5"] * 13, *[b"68fd1e64"] * 26])


def model_reason(line: bytes) -> str | None:
    """Why a line without its line end is bad."""
    cells = line.split(b"\t")
    if len(cells) != 40:
        return "columns"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "text"
    if b"\r" in line:
        return "text"
    if cells[0] not in (b"0", b"1"):
        return "label"
    for cell in cells[1:14]:
        pattern = rb" *[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)? *"
        if cell and not (re.fullmatch(pattern, cell) and math.isfinite(float(cell))):
            return "number"
    return None


def model_read(text: bytes) -> tuple[list[tuple], ReadReport]:
    """Good rows as (ids, dense, label) and the report, one line at a time."""
    rows, report = [], ReadReport()
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, 1):
        if line.endswith(b"\r"):
            line, report.crlf = line[:-1], report.crlf + 1
        reason = model_reason(line)
        if reason is not None:
            report.bad[reason] += 1
            report.first_bad.append((number, reason))
            continue
        report.rows += 1
        cells = line.decode().split("\t")
        ids = tuple(
            int(category_keys(name, [cell])[0]) if cell else missing_key(name)
            for name, cell in zip(CATEGORY_FIELDS, cells[14:], strict=True)
        )
        counts = [float(cell) if cell else math.nan for cell in cells[1:14]]
        dense = tuple(np.float32(np.log1p(x)) if x > 0 else np.float32(0) for x in counts)
        rows.append((ids, dense, float(cells[0])))
    report.first_bad = report.first_bad[:20]
    return rows, report


NUMBERS = st.sampled_from(
    "0 5 -3 1382 1.5 .5 5. - . +5 0x10 1e3 1e999 nan inf -inf NULL NA abc 1_0 5,0 007".split()
    + ["1e-400", "", " 5", "5 ", " ", "1 2", '"5"', "\u0665"]
).map(str.encode)
TEXTS = st.sampled_from(
    [b"", b"68fd1e64", b"NA", b"null", b'"a', b"a\\", b" x ", "é".encode(), b"\xff", b"a\rb", b"\0"]
)
GOOD_CELLS = st.tuples(
    st.sampled_from([b"0", b"1"]),
    st.lists(st.sampled_from([b"", b"0", b"17", b"-1", b"2.5"]), min_size=13, max_size=13),
    st.lists(st.sampled_from([b"", b"a", b"05db9164"]), min_size=26, max_size=26),
).map(lambda parts: [parts[0], *parts[1], *parts[2]])


@st.composite
def lines(draw) -> bytes:
    """A good line, most often with something odd done to it."""
    cells = list(draw(GOOD_CELLS))
    match draw(st.sampled_from(["good", "number", "text", "label", "columns", "raw"])):
        case "number":
            cells[draw(st.integers(1, 13))] = draw(NUMBERS)
        case "text":
            cells[draw(st.integers(14, 39))] = draw(TEXTS)
        case "label":
            cells[0] = draw(st.sampled_from([b"", b"2", b"01", b" 1", b"1.0", b"\xef\xbb\xbf1"]))
        case "columns":
            cells = draw(st.sampled_from([cells[:39], [*cells, b""], [], [*cells, *cells]]))
        case "raw":
            return draw(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")))
    return b"\t".join(cells)


@st.composite
def files(draw) -> bytes:
    ends = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r\r\n"])
    text = b"".join(line + draw(ends) for line in draw(st.lists(lines(), max_size=12)))
    text += draw(st.sampled_from([b"", b"", GOOD, b"1\t2", b"\r"]))
    assume(not text.startswith(b"\x1f\x8b"))  # that would be gzip
    return text


def read(text: bytes, **options) -> tuple[list[tuple], CriteoReader]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        path.write_bytes(text)
        reader = CriteoReader(path, **options)
        found = list(reader)
    rows = [
        (tuple(i.tolist()), tuple(d), float(y[0]))
        for batch in found
        for i, d, y in zip(batch["ids"], batch["dense"], batch["label"], strict=True)
    ]
    sizes = [len(batch["ids"]) for batch in found]
    assert all(size == options.get("batch_size", 4096) for size in sizes[:-1])
    return rows, reader


def assert_same_rows(found: list[tuple], expected: list[tuple]) -> None:
    assert [row[0] for row in found] == [row[0] for row in expected]
    assert [row[2] for row in found] == [row[2] for row in expected]
    np.testing.assert_allclose([r[1] for r in found], [r[1] for r in expected], rtol=3e-7)


@examples(80, 250)
@given(files(), st.integers(1, 20_000), st.integers(1, 5))
@example(b"", 10, 1)
@example(b"\n", 10, 1)
@example(b"\xef\xbb\xbf" + GOOD + b"\n", 1, 1)
@example(GOOD + b"\n\xef\xbb\xbf" + GOOD + b"\n" + GOOD, 100, 2)
@example(GOOD + b"\r", 5, 2)
@example(b"\r\n" + GOOD + b"\r\n", 1, 2)
def test_reads_what_a_reader_of_lines_reads(text: bytes, piece_bytes: int, size: int) -> None:
    expected, report = model_read(text)
    found, reader = read(text, piece_bytes=piece_bytes, batch_size=size)
    assert_same_rows(found, expected)
    assert reader.report == report


@settings(max_examples=60, deadline=None)
@given(files())
def test_strict_refuses_the_first_bad_line(text: bytes) -> None:
    rows, report = model_read(text)
    if report.bad_rows:
        line, reason = report.first_bad[0]
        with pytest.raises(ValueError, match=rf"train\.txt, line {line}: bad {reason}$"):
            read(text, strict=True)
    elif text:
        assert_same_rows(read(text, strict=True)[0], rows)
    else:
        with pytest.raises(ValueError, match="train.txt is empty"):
            read(text, strict=True)


def test_every_reason_is_met() -> None:
    text = b"\n".join(
        [b"x", GOOD[:-1] + b"\xff", b"2" + GOOD[1:], b"1\tx" + GOOD[3:], GOOD, GOOD + b"\r\n"]
    )
    report = read(text)[1].report
    assert report.bad == dict.fromkeys(BAD_REASONS, 1)
    assert (report.rows, report.crlf, report.bad_rows) == (2, 1, 4)
    assert report.first_bad == list(zip(range(1, 5), BAD_REASONS, strict=True))


def test_counts_as_categories_adds_their_bins() -> None:
    cells = GOOD.split(b"\t")
    cells[1:4] = [b"", b"-2", b"1000"]
    rows, reader = read(b"\t".join(cells), counts_as_categories=True)
    assert reader.fields["ids"] == (*CATEGORY_FIELDS, *COUNT_FIELDS)
    expected = [missing_key("I1"), category_keys("I2", [-2])[0], category_keys("I3", [47])[0]]
    assert list(rows[0][0][26:29]) == expected


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=9))
def test_bins_and_scales_are_finite_and_in_order(values) -> None:
    counts = np.array([math.nan if v is None else v for v in values], np.float64)
    scaled, bins = scale_counts(counts), bin_counts(counts)
    assert np.isfinite(scaled).all() and (scaled >= 0).all() and scaled.dtype == np.float32
    assert np.array_equal(np.isnan(bins), np.isnan(counts))
    order = np.argsort(counts[~np.isnan(counts)])
    for result in (scaled, bins):
        kept = result[~np.isnan(counts)][order]
        assert (np.diff(kept) >= 0).all()
    assert (np.abs(bins[~np.isnan(bins)]) < 2**62).all()


def test_gzip_reads_as_plain_whatever_the_name(tmp_path) -> None:
    text = (GOOD + b"\n") * 300
    (tmp_path / "plain.gz").write_bytes(text)
    (tmp_path / "packed.txt").write_bytes(gzip.compress(text))
    one, two = (
        np.concatenate([b["ids"] for b in CriteoReader(tmp_path / name, piece_bytes=1000)])
        for name in ("plain.gz", "packed.txt")
    )
    assert np.array_equal(one, two) and len(one) == 300


def test_truncated_and_damaged_gzip_is_refused(tmp_path) -> None:
    random = np.random.default_rng(0)
    text = b"".join(GOOD[:-8] + random.bytes(4).hex().encode() + b"\n" for _ in range(2000))
    packed = gzip.compress(text)
    path = tmp_path / "train.txt.gz"
    for length in (len(packed) - 1, len(packed) // 2, 12):
        path.write_bytes(packed[:length])
        with pytest.raises(ValueError, match=r"train\.txt\.gz is truncated"):
            list(CriteoReader(path, piece_bytes=10_000))
    broken = bytearray(packed)
    broken[len(packed) // 2] ^= 0xFF
    path.write_bytes(broken)
    with pytest.raises(ValueError, match=r"train\.txt\.gz is damaged"):
        list(CriteoReader(path, piece_bytes=10_000))


def test_a_file_without_lines_is_refused_in_bounded_memory(tmp_path) -> None:
    path = tmp_path / "zeros"
    with path.open("wb") as stream:
        stream.truncate(40 << 20)
    with pytest.raises(ValueError, match="line 1 is longer than"):
        list(pieces(path, 1 << 20))


@pytest.mark.parametrize("form", ["mindrecord", "parquet"])
def test_convert_writes_what_the_reader_reads(tmp_path, capsys, form) -> None:
    text = (GOOD + b"\n") * 50 + b"bad\n" + GOOD + b"\r\n"
    (tmp_path / "train.txt").write_bytes(text)
    arguments = ["--input", str(tmp_path / "train.txt"), "--output", str(tmp_path / "out")]
    arguments += ["--format", form, "--batch-size", "7", "--json", str(tmp_path / "figures.json")]
    assert convert.main(arguments) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["rows"], figures["bad_rows"], figures["crlf"]) == (51, 1, 1)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["rows"] == 51 and manifest["source"]["bad"]["columns"] == 1
    read_back = list(batches(tmp_path / "out", 13))
    direct = list(CriteoReader(tmp_path / "train.txt", 13))
    assert len(read_back) == len(direct) == 4
    for one, two in zip(read_back, direct, strict=True):
        assert all(np.array_equal(one[name], two[name]) for name in ("ids", "dense", "label"))
    assert convert.main(arguments) == 1
    assert "exists" in capsys.readouterr().err


def test_convert_refuses_under_strict_and_leaves_nothing(tmp_path, capsys) -> None:
    (tmp_path / "train.txt").write_bytes((GOOD + b"\n") * 5 + b"bad\n")
    arguments = ["--input", str(tmp_path / "train.txt"), "--output", str(tmp_path / "out")]
    assert convert.main([*arguments, "--strict", "--format", "parquet"]) == 1
    assert "line 6: bad columns" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["train.txt"]
    (tmp_path / "train.txt").write_bytes(b"")
    assert convert.main([*arguments, "--format", "parquet"]) == 1
    assert "at least one row" in capsys.readouterr().err
