# SPDX-License-Identifier: Apache-2.0
"""category_keys against a plain-Python model of the documented algorithm."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mindspore_rec.common.columns.hashing import category_keys, missing_key, mix64

WORD = (1 << 64) - 1
FIELDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTS = st.integers(-(2**63), 2**63 - 1)


def model_salt(field: str) -> bytes:
    return hashlib.blake2b(field.encode(), digest_size=8).digest()


def model_siphash(key: bytes, data: bytes) -> int:
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rotl(x: int, b: int) -> int:
        return ((x << b) | (x >> (64 - b))) & WORD

    def rounds(n: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(n):
            v0, v2 = (v0 + v1) & WORD, (v2 + v3) & WORD
            v1, v3 = rotl(v1, 13) ^ v0, rotl(v3, 16) ^ v2
            v0 = rotl(v0, 32)
            v2, v0 = (v2 + v1) & WORD, (v0 + v3) & WORD
            v1, v3 = rotl(v1, 17) ^ v2, rotl(v3, 21) ^ v0
            v2 = rotl(v2, 32)

    tail = len(data) % 8
    padded = data + bytes(7 - tail) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xFF
    rounds(4)
    return v0 ^ v1 ^ v2 ^ v3


def model_mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def model_key(field: str, value: str | int | None) -> int:
    salt = model_salt(field)
    if value is None:
        digest = hashlib.blake2b(field.encode(), digest_size=8, person=b"missing").digest()
        return signed(int.from_bytes(digest, "little"))
    if isinstance(value, str):
        return signed(model_mix(model_siphash(salt.hex().encode(), value.encode())))
    return signed(model_mix(model_mix(value & WORD) ^ int.from_bytes(salt, "little")))


def test_model_siphash_has_the_vector_of_the_paper() -> None:
    assert model_siphash(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5


@given(FIELDS, st.lists(st.none() | TEXTS, max_size=30))
def test_strings_follow_the_documented_algorithm(field: str, values: list[str | None]) -> None:
    expected = [model_key(field, v) for v in values]
    keys = category_keys(field, values)
    assert keys.dtype == np.int64
    assert keys.tolist() == expected
    for same in (
        pa.array(values, pa.string()),
        pa.array(values, pa.large_string()),
        pa.array(values, pa.string()).dictionary_encode(),
        pa.chunked_array([pa.array(values[:7], pa.string()), pa.array(values[7:], pa.string())]),
        pd.Series(values, dtype=object),
        pd.Series(values, dtype="category") if any(values) else values,
    ):
        assert category_keys(field, same).tolist() == expected


@given(FIELDS, st.lists(st.none() | INTS, max_size=30))
def test_integers_follow_the_documented_algorithm(field: str, values: list[int | None]) -> None:
    expected = [model_key(field, v) for v in values]
    assert category_keys(field, values).tolist() == expected
    assert category_keys(field, pd.array(values, "Int64")).tolist() == expected


@given(st.sampled_from(["int8", "uint8", "int32", "uint32", "uint64"]), st.data())
def test_width_of_an_integer_does_not_matter(dtype: str, data: st.DataObject) -> None:
    info = np.iinfo(dtype)
    top = min(int(info.max), 2**63 - 1)
    values = data.draw(st.lists(st.integers(int(info.min), top), max_size=10))
    narrow = category_keys("f", np.array(values, dtype))
    assert narrow.tolist() == [model_key("f", v) for v in values]


@given(st.lists(INTS, unique=True, max_size=50), FIELDS)
def test_integers_of_one_field_never_collide(values: list[int], field: str) -> None:
    assert len(set(category_keys(field, np.array(values, np.int64)).tolist())) == len(values)


@given(FIELDS, FIELDS, st.lists(TEXTS, min_size=1, max_size=20))
def test_fields_are_independent(one: str, two: str, values: list[str]) -> None:
    shared = set(category_keys(one, values).tolist()) & set(category_keys(two, values).tolist())
    assert bool(shared) == (one == two)


def test_every_bit_of_a_key_is_used() -> None:
    for values in (np.arange(4096), [str(i) for i in range(4096)]):
        keys = category_keys("f", values)
        share = [np.mean((keys >> bit) & 1) for bit in range(64)]
        assert 0.45 < min(share) and max(share) < 0.55


def test_same_keys_in_another_process() -> None:
    code = (
        "from mindspore_rec.common.columns.hashing import category_keys;"
        "print(category_keys('C1', ['68fd1e64', '', None]).tolist())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert printed.strip().endswith(str(category_keys("C1", ["68fd1e64", "", None]).tolist()))


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_mix64_follows_the_model_and_leaves_its_input(words: list[int]) -> None:
    given_words = np.array(words, np.uint64)
    assert mix64(given_words).tolist() == [model_mix(w) for w in words]
    assert given_words.tolist() == words


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        (np.array([1.5]), TypeError, "double"),
        ([True], TypeError, "bool"),
        ([b"a"], TypeError, "binary"),
        (["a", 1], TypeError, "all strings or all integers"),
        (np.zeros((2, 2), np.int64), ValueError, "one-dimensional"),
        ("abc", ValueError, "one-dimensional"),
        (np.array([2**63], np.uint64), ValueError, "int64"),
        ([2**64], ValueError, "int64"),
        (["\ud800"], ValueError, "Unicode"),
    ],
)
def test_bad_values_are_refused(values: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        category_keys("f", values)


def test_bad_field_is_refused() -> None:
    with pytest.raises(ValueError, match="field must not be empty"):
        category_keys("", ["a"])
    with pytest.raises(TypeError, match="field must be a string"):
        missing_key(3)  # type: ignore[arg-type]
