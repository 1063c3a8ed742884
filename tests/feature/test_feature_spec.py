# SPDX-License-Identifier: Apache-2.0
"""FeatureSpec: every rule and its message."""

from __future__ import annotations

import dataclasses
import re
import string
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mindspore_rec import FeatureSpec
from mindspore_rec.common.columns.feature_spec import check_specs, specs_of_table

LEGAL = string.ascii_letters + string.digits + "_."
TIME = FeatureSpec("time", is_timestamp=True)


def test_defaults():
    spec = FeatureSpec("user")
    assert (spec.table_name, spec.column, spec.faae_coefficient) == ("user", "user", 1)
    assert (spec.count_threshold, spec.idle_seconds) == (None, None)
    assert (TIME.table_name, TIME.column) == (None, "time")


@pytest.mark.parametrize("index_key", [0, 255, "column of 255"])
def test_index_key_names_the_column(index_key):
    assert FeatureSpec("user", index_key=index_key).column == index_key


@pytest.mark.parametrize("off", [None, -1])
def test_off_is_none_or_minus_one(off):
    spec = FeatureSpec("user", access_threshold=off, eviction_threshold=off)
    assert (spec.count_threshold, spec.idle_seconds) == (None, None)
    check_specs(spec)  # no timestamp needed


def test_admission_threshold_zero_is_on():
    assert FeatureSpec("user", access_threshold=0).count_threshold == 0


def test_eviction_needs_no_admission():
    assert check_specs([FeatureSpec("user", eviction_threshold=9), TIME])[0].idle_seconds == 9


def test_frozen_and_comparable():
    assert FeatureSpec("user") == FeatureSpec("user", table_name="user")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(FeatureSpec("user"), "name", "item")  # noqa: B010


@given(st.text(LEGAL, min_size=1, max_size=100))
def test_legal_names(name):
    assert FeatureSpec(name).table_name == name


@given(st.text(max_size=120).filter(lambda name: not re.fullmatch(r"[0-9A-Za-z_.]{1,100}", name)))
def test_other_names_are_refused(name):
    for arguments in ({"name": name}, {"name": "f", "table_name": name}):
        with pytest.raises(ValueError, match="name must be 1 to 100 of the characters 0-9, A-Z"):
            FeatureSpec(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": 7}, TypeError, "^name must be a str, got 7"),
        ({"table_name": 7}, TypeError, "feature 'f': table_name must be a str, got 7"),
        ({"index_key": -1}, ValueError, r"feature 'f': index_key must be in \[0, 255\], got -1"),
        ({"index_key": 256}, ValueError, r"index_key must be in \[0, 255\], got 256"),
        ({"index_key": ""}, ValueError, "index_key must be a name of 1 to 255 characters, got 0"),
        ({"index_key": "x" * 256}, ValueError, "1 to 255 characters, got 256"),
        ({"index_key": 1.0}, TypeError, "index_key must be an int, a str or None, got 1.0"),
        ({"index_key": True}, TypeError, "index_key must be an int, a str or None, got True"),
        ({"access_threshold": -2}, ValueError, r"access_threshold must be in \[-1, 1073741823\]"),
        ({"access_threshold": 1 << 30}, ValueError, "access_threshold must be in"),
        ({"access_threshold": 1.5}, TypeError, "access_threshold must be an int, got 1.5"),
        ({"eviction_threshold": -2}, ValueError, r"eviction_threshold must be in \[-1, 2147483647"),
        ({"eviction_threshold": 0}, ValueError, r"\(off\), or in \[1, 2147483647\] seconds, got 0"),
        ({"eviction_threshold": "day"}, TypeError, "eviction_threshold must be an int, got 'day'"),
        ({"is_timestamp": 1}, TypeError, "is_timestamp must be a bool or None, got 1"),
        ({"batch_size": 0}, ValueError, r"batch_size must be in \[1, 2147483647\], got 0"),
        ({"faae_coefficient": 0}, ValueError, r"faae_coefficient must be in \[1, 1048576\], got 0"),
        ({"faae_coefficient": None}, TypeError, "faae_coefficient must be an int, got None"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        FeatureSpec(**{"name": "f", **arguments})


@pytest.mark.parametrize(
    "argument", ["table_name", "access_threshold", "eviction_threshold", "faae_coefficient"]
)
def test_a_timestamp_has_no_table(argument):
    value: Any = "items" if argument == "table_name" else 2
    with pytest.raises(ValueError, match=f"feature 't': {argument} is for ids; with is_timestamp"):
        FeatureSpec("t", is_timestamp=True, **{argument: value})


@pytest.mark.parametrize("specs", [7, "user", None, ["user"], [FeatureSpec("a"), 7]])
def test_specs_are_feature_specs(specs):
    with pytest.raises(TypeError, match="specs must be FeatureSpec objects, got"):
        check_specs(specs)


@pytest.mark.parametrize("specs", [[], [TIME], TIME])
def test_specs_have_a_feature(specs):
    with pytest.raises(ValueError, match="specs must have at least one feature that is not a time"):
        check_specs(specs)


def test_names_differ():
    with pytest.raises(ValueError, match="different names, got 'a' twice: one feature may be"):
        check_specs([FeatureSpec("a"), FeatureSpec("b"), FeatureSpec("a", table_name="b")])


@pytest.mark.parametrize(
    ("argument", "one", "two"),
    [("access_threshold", 2, 3), ("access_threshold", None, 0), ("eviction_threshold", 5, -1)],
)
def test_features_of_a_table_agree(argument, one, two):
    specs = [
        FeatureSpec("clicked", table_name="items", **{argument: one}),
        FeatureSpec("shown", table_name="items", **{argument: two}),
        TIME,
    ]
    two = None if two == -1 else two
    message = (
        f"features of table 'items' must have the same {argument}, got {one} of feature 'clicked' "
        f"and {two} of feature 'shown'"
    )
    with pytest.raises(ValueError, match=message):
        check_specs(specs)


def test_off_and_off_agree():
    specs = [
        FeatureSpec("clicked", table_name="items", access_threshold=-1),
        FeatureSpec("shown", table_name="items"),
        FeatureSpec("user", access_threshold=4),
    ]
    assert check_specs(iter(specs)) == tuple(specs)


def test_eviction_needs_the_time():
    message = (
        r"feature 'a' evicts by age \(eviction_threshold=60\) and there is no time: add a Feat"
    )
    with pytest.raises(ValueError, match=message):
        check_specs([FeatureSpec("a", eviction_threshold=60), FeatureSpec("b")])


def test_there_is_one_time():
    other = FeatureSpec("clock", is_timestamp=True)
    with pytest.raises(ValueError, match="only one feature may be the timestamp, got 'time' and '"):
        check_specs([FeatureSpec("a"), TIME, other])


def test_specs_of_table():
    a, b = FeatureSpec("a", table_name="t"), FeatureSpec("b", table_name="t")
    assert specs_of_table([a, FeatureSpec("c"), b], "t") == (a, b)
    with pytest.raises(ValueError, match="specs must have a feature with table_name 'u', got none"):
        specs_of_table([a, b], "u")
