# SPDX-License-Identifier: Apache-2.0
"""Convert the values of categories to one type, so that a value has one key in every file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.columns.arrow_columns import is_text

__all__ = ["as_categories", "check_values", "values_of_type", "whole_numbers"]

_WHOLE = r"^\s*[+-]?0*[0-9]{1,19}(\.0*)?\s*$"
_GREATEST, _LEAST = "9223372036854775807", "9223372036854775808"  # without the sign


def check_values(values: str | None) -> str | None:
    """Check the argument `values` of a transform, and return the argument.

    Raises:
        ValueError: `values` is neither None, 'text', 'whole' nor 'key'.
    """
    return None if values is None else check_one_of("values", values, ("text", "whole", "key"))


def as_categories(values: pa.Array, kind: str | None) -> pa.Array:
    """Convert categories to texts or to whole numbers.

    Args:
        values: texts, integers, bools or whole floats ``[B]``, or a dictionary array of such
            values.
        kind: 'text' or 'whole'. Texts that are not whole numbers become missing, and False and True
            become 0 and 1. None and 'key' leave the values unchanged.

    Example:
        >>> as_categories(pa.array(["7", " 8", "x"]), "whole").to_pylist()
        [7, 8, None]
        >>> as_categories(pa.array([7.0, None]), "text").to_pylist()
        ['7', None]
    """
    type_ = values.type
    if pa.types.is_dictionary(type_):
        known = as_categories(values.dictionary, kind)
        return values if known is values.dictionary else known.take(values.indices)
    if kind in ("text", "whole") and pa.types.is_boolean(type_):
        whole = values.cast(pa.int64())
        return whole if kind == "whole" else whole.cast(pa.string())
    if kind == "whole" and is_text(type_):
        return whole_numbers(values)
    if kind == "text" and pa.types.is_floating(type_):
        values = pc.if_else(pc.is_nan(values), None, values)
        whole = values.cast(pa.int64(), safe=False)
        is_whole = pc.equal(whole.cast(pa.float64(), safe=False), values.cast(pa.float64()))
        return pc.if_else(is_whole, whole.cast(pa.string()), values.cast(pa.string()))
    if kind == "text" and pa.types.is_integer(type_):
        return values.cast(pa.string())
    return values


def whole_numbers(texts: pa.Array) -> pa.Array:
    """Return texts as int64; a text that is not a whole number in int64's range becomes missing.

    The words false and true become 0 and 1.

    Example:
        >>> whole_numbers(pa.array(["-7.0", "9223372036854775807", "9" * 19])).to_pylist()
        [-7, 9223372036854775807, None]
    """
    legal = pc.match_substring_regex(texts, _WHOLE)
    if pc.all(legal).as_py() is False:
        texts = _without_words(texts)
        legal = pc.match_substring_regex(texts, _WHOLE)
    digits = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"\.0*$", "")
    digits = pc.replace_substring_regex(digits, r"^(-?)\+?0*([0-9])", r"\1\2")
    bare = pc.replace_substring(digits, "-", "")
    most = pc.if_else(pc.starts_with(digits, "-"), _LEAST, _GREATEST)
    fits = pc.or_(pc.less(pc.utf8_length(bare), 19), pc.less_equal(bare, most))
    return pc.if_else(pc.and_(legal, fits), digits, None).cast(pa.int64())


def _without_words(texts: pa.Array) -> pa.Array:
    """Return texts in which '0' replaces the word false and '1' replaces the word true."""
    for number, word in enumerate(("false", "true")):
        is_word = pc.match_substring_regex(texts, rf"(?i)^\s*{word}\s*$")
        texts = pc.if_else(is_word, str(number), texts)
    return texts


def values_of_type(kind: pa.DataType, separator: str | None = None) -> str | None:
    """Return the type of categories, 'text' or 'whole'; None if the Arrow type does not tell.

    Args:
        kind: Arrow type of the column, such as a list type for a column of lists.
        separator: text between the values of a list in a column of texts.

    Example:
        >>> [values_of_type(kind) for kind in (pa.list_(pa.int64()), pa.string(), pa.null())]
        ['whole', 'text', None]
    """
    while hasattr(kind, "value_type"):  # of lists and dictionaries
        kind = kind.value_type
    types = pa.types
    if separator is not None:
        return "text"
    if is_text(kind):
        return "text"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return "whole"
    return None
