# SPDX-License-Identifier: Apache-2.0
"""Stable int64 keys for the raw values of a categorical field.

The algorithm is fixed, because checkpoints store keys: a value must have the same key next year, in
another process and on another machine. ``field`` is the field's name:

* ``salt = blake2b(field as UTF-8, digest_size=8)``.
* A **string** ``v`` gets ``mix(SipHash-2-4(v as UTF-8))``. The 16-byte SipHash key is ``salt``,
  written as 16 lower-case hexadecimal digits. Read as a signed integer, the result of
  ``pandas.util.hash_array`` for ``v`` with this ``hash_key`` equals the key.
* An **integer** ``v`` gets ``mix(mix(v) XOR salt)``. For integers, ``salt`` is read as a
  little-endian uint64. Two different integers of one field never have the same key.
* A **missing** value gets ``blake2b(field as UTF-8, digest_size=8, person=b"missing")``, read as a
  little-endian word.

``mix`` is the finalizer of SplitMix64, a bijection of 64-bit words. The key is the 64-bit result,
read as a signed integer. The string ``"7"`` and the integer ``7`` are different values and have
different keys. The empty string is a string, not a missing value.

Sources: SipHash, Aumasson & Bernstein 2012 (https://www.aumasson.jp/siphash/siphash.pdf);
SplitMix64, Steele et al. 2014 (https://doi.org/10.1145/2660193.2660195).
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.arrow_columns import values_array

__all__ = ["category_keys", "keys_of", "missing_key", "mix64", "salt_word", "whole_floats"]

_SHIFT_MULTIPLY = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def category_keys(field: str, values: Any) -> np.ndarray:
    """Hash the values of one categorical field to int64 keys.

    Args:
        field: Name of the field, not empty. The name salts the hash, so equal values of two fields
            get unrelated keys.
        values: N strings or integers, as a list, a one-dimensional NumPy array, a pandas Series or
            Categorical, or an Arrow array, chunked array or dictionary array. ``None``, NaN,
            ``pandas.NA`` and Arrow nulls are missing. A list must not mix strings and integers.
            Unsigned integers must be below ``2**63``. Floats are read as integers, because pandas
            converts integers to floats if one integer is missing. The floats must be whole, and at
            most ``2**53`` (float32: ``2**24``). A `Category` in a FeaturePipeline accepts the same
            values as this function.

    Returns:
        int64 array ``[N]``. Every int64 value is a possible key.

    Raises:
        TypeError: ``field`` is not a string, or ``values`` are not strings or integers. Fractional
            floats are illegal, because one float has several text forms. Before the call, bin
            fractional floats or format them as text.
        ValueError: ``field`` is empty, ``values`` is not one-dimensional, an integer does not fit
            int64, or a string is not valid Unicode.

    Example:
        >>> category_keys("C1", ["68fd1e64", "05db9164", "68fd1e64"])
        array([-7456674149910260318,  4684726209493809624, -7456674149910260318])
        >>> category_keys("C2", ["68fd1e64", None])
        array([-5603756189350963647, -8487037811305529808])
        >>> category_keys("user", [-1, 0, 7])
        array([  798422327992132889, -5814454816388300252, -8401731945181208488])
        >>> int(category_keys("C2", [None])[0]) == missing_key("C2")
        True
    """
    _salt(field)
    where = f"values of field {field!r} must"
    return keys_of(field, values_array(where, values, "be all strings or all integers"), where)


def keys_of(field: str, values: pa.Array, where: str) -> np.ndarray:
    """Return `category_keys(field, values)` for an array that `values_array` made.

    A slice of a dictionary array keeps the whole dictionary. If the dictionary is longer than the
    array, only the values in use are hashed.

    Args:
        field: text that is the salt of the hash.
        values: strings or integers ``[B]``, or floats that are all whole.
        where: text before the word "must" in error messages.

    Raises:
        TypeError, ValueError: see `category_keys`.

    Example:
        >>> int(keys_of("C1", pa.array(["68fd1e64"]), "column 'C1' must")[0])
        -7456674149910260318
    """
    salt = _salt(field)
    kind = values.type
    if pa.types.is_dictionary(kind):
        indices, known = values.indices.cast(pa.int64()), values.dictionary
        if len(known) > len(values):
            used = pc.drop_null(pc.unique(indices))
            indices, known = pc.index_in(indices, used), known.take(used)
        return _take(field, keys_of(field, known, where), indices)
    if pa.types.is_null(kind):
        return np.full(len(values), missing_key(field), np.int64)
    if pa.types.is_floating(kind):
        values = whole_floats(where, values)
        kind = values.type
    if pa.types.is_integer(kind):
        return _integer_keys(field, salt, values, where)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        encoded = pc.dictionary_encode(values)
        return _take(field, _string_keys(salt, encoded.dictionary), encoded.indices)
    raise TypeError(f"{where} be strings or integers, got {kind}: {_remedy(kind)}")


def missing_key(field: str) -> int:
    """Return the key of all missing values of ``field``.

    Args:
        field: Name of the field, not empty.

    Returns:
        An int in the range of int64.

    Raises:
        TypeError: ``field`` is not a string.
        ValueError: ``field`` is empty.

    Example:
        >>> missing_key("C1")
        7144392874354540487
    """
    _salt(field)
    digest = hashlib.blake2b(field.encode(), digest_size=8, person=b"missing").digest()
    return int.from_bytes(digest, "little", signed=True)


def mix64(words: np.ndarray) -> np.ndarray:
    """Return the SplitMix64 finalizer of each word. The finalizer is a bijection of uint64.

    Args:
        words: uint64 array of any shape; not changed.

    Returns:
        uint64 array of the same shape.

    Example:
        >>> mix64(np.array([1], np.uint64))
        array([6238072747940578789], dtype=uint64)
    """
    mixed = np.array(words, dtype=np.uint64)
    for shift, factor in _SHIFT_MULTIPLY:
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def salt_word(field: str) -> np.uint64:
    """Return the salt of ``field`` as an integer; the salt's bytes are little-endian.

    Raises:
        TypeError: ``field`` is not a string.
        ValueError: ``field`` is empty.
    """
    return np.uint64(int.from_bytes(_salt(field), "little"))


def _salt(field: str) -> bytes:
    if not isinstance(field, str):
        raise TypeError(f"field must be a string, got {type(field).__name__}")
    if not field:
        raise ValueError("field must not be empty: it salts the hash")
    return hashlib.blake2b(field.encode(), digest_size=8).digest()


def whole_floats(where: str, values: pa.Array) -> pa.Array:
    """Convert floats to int64. Each float must be whole or missing.

    Args:
        where: text before the word "must" in error messages.
        values: floats ``[B]``. NaN is a missing value.

    Raises:
        TypeError: a float is not whole, or is too large to be an exact integer.
    """
    numbers = values.to_numpy(zero_copy_only=False)  # NaN if one is missing
    there = ~np.isnan(numbers)
    most = 2.0 ** (np.finfo(numbers.dtype).nmant + 1)  # up to here, a float is exactly one integer
    wrong = there & ~((np.abs(numbers) <= most) & (np.trunc(numbers) == numbers))
    if wrong.any():
        raise TypeError(
            f"{where} be strings or integers, got {values.type} with {float(numbers[wrong][0])}: "
            "make texts or integers of them, or let a QuantileScale read them as numbers"
        )
    return pa.array(np.where(there, numbers, 0).astype(np.int64), mask=~there)


def _remedy(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "make integers of them, .astype(int)"
    if pa.types.is_temporal(kind):
        return "let a TimePart read them, or make texts of them, .astype(str)"
    if pa.types.is_nested(kind):
        return (
            "pandas.DataFrame(column.tolist()) makes a column of each place, or give an array "
            "[rows, length] to a FeatureSpec without a transform"
        )
    return "make texts of them, .astype(str)"


def _take(field: str, uniques: np.ndarray, indices: pa.Array) -> np.ndarray:
    if not indices.null_count:
        return uniques[indices.to_numpy(zero_copy_only=False)]
    table = np.append(uniques, missing_key(field))
    filled = pc.fill_null(indices.cast(pa.int64()), len(uniques))
    return table[filled.to_numpy(zero_copy_only=False)]


def _string_keys(salt: bytes, uniques: pa.Array) -> np.ndarray:
    if not len(uniques):
        return np.empty(0, np.int64)
    texts = uniques.to_numpy(zero_copy_only=False)
    return pd.util.hash_array(texts, hash_key=salt.hex(), categorize=False).view(np.int64)


def _integer_keys(field: str, salt: bytes, values: pa.Array, where: str) -> np.ndarray:
    try:
        words = values.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise ValueError(f"{where} be in the range of int64, got {_greatest(values)}") from error
    filled = pc.fill_null(words, 0) if words.null_count else words
    raw = filled.to_numpy(zero_copy_only=False).view(np.uint64)
    keys = mix64(mix64(raw) ^ np.uint64(int.from_bytes(salt, "little"))).view(np.int64)
    if words.null_count:
        keys[words.is_null().to_numpy(zero_copy_only=False)] = missing_key(field)
    return keys


def _greatest(values: pa.Array) -> int:
    return int(pc.max(values).as_py())
