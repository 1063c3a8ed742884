# SPDX-License-Identifier: Apache-2.0
"""Recognise columns of ids, times and weights by name; find the most similar name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = ["is_id_name", "is_propensity_name", "is_time_name", "is_weight_name", "nearest_name"]

_IDS = frozenset(
    "id ids uid uuid guid key keys code codes sku ean isbn asin zip zipcode postcode postal hash "
    "ip device cookie session phone category cat type class cluster segment slot".split()
)
_TIMES = frozenset("time timestamp ts date datetime day dt at when hour created clock".split())
_WEIGHTS = frozenset("sample instance row case survey example loss".split())
_UNNAMED = re.compile(r"^(Unnamed: \d+|__index_level_\d+__|index|row|rowid|row_id|row_number)$")


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case.

    Example:
        >>> words_of("CustomerID"), words_of("user_id"), words_of("eventTime2")
        (['customer', 'id'], ['user', 'id'], ['event', 'time', '2'])
    """
    parted = re.sub(r"([a-z])([A-Z])|([A-Z])([A-Z][a-z])|([A-Za-z])([0-9])", _between, name)
    return [word for word in re.split(r"[^a-z0-9]+", parted.lower()) if word]


def _between(match: re.Match[str]) -> str:
    return " ".join(group for group in match.groups() if group)


def is_id_name(name: str) -> bool:
    """Return True if whole numbers in a column with the name `name` are probably ids.

    Example:
        >>> [is_id_name(name) for name in ("movieId", "det_ind_code", "paid", "year", "item")]
        [True, True, False, False, True]
    """
    words = words_of(name)
    if not words:
        return False
    return not _IDS.isdisjoint(words) or words in (["user"], ["item"], ["customer"], ["product"])


def is_time_name(name: str) -> bool:
    """Return True if numbers in a column with the name `name` may be times.

    Example:
        >>> [is_time_name(name) for name in ("timestamp", "created_at", "InvoiceDate", "age")]
        [True, True, True, False]
    """
    return not _TIMES.isdisjoint(words_of(name))


def is_weight_name(name: str) -> bool:
    """Return True for names such as 'sample_weight'.

    Example:
        >>> is_weight_name("instance_weight"), is_weight_name("weight_kg")
        (True, False)
    """
    words = words_of(name)
    return len(words) == 2 and words[0] in _WEIGHTS and words[1] in ("weight", "weights")


def is_propensity_name(name: str) -> bool:
    """Return True for names such as 'propensity_score'.

    Example:
        >>> is_propensity_name("propensity_score"), is_propensity_name("credit_score")
        (True, False)
    """
    return "propensity" in words_of(name)


def is_row_number_name(name: str) -> bool:
    """Return True for names that pandas and databases give to a column of row numbers.

    Example:
        >>> is_row_number_name("Unnamed: 0"), is_row_number_name("user_id")
        (True, False)
    """
    return _UNNAMED.match(name) is not None


def nearest_name(name: str, names: Iterable[str]) -> str:
    """Return text for the end of an error message: the most similar name, or the first names.

    Example:
        >>> nearest_name("clickd", ["user", "clicked"])
        "did you mean 'clicked'?"
        >>> nearest_name("y", ["user", "item", "clicked"])
        "the columns are 'user', 'item', 'clicked'"
    """
    known = list(names)
    by_lower = {each.lower().strip(): each for each in known}
    near = difflib.get_close_matches(name.lower().strip(), list(by_lower), n=1, cutoff=0.6)
    if near:
        return f"did you mean {by_lower[near[0]]!r}?"
    shown = ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")
    return f"the columns are {shown}"
