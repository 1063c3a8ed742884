# SPDX-License-Identifier: Apache-2.0
"""CacheConfig: what it takes, what it refuses and in which words."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import CacheConfig, HashEmbeddingLookup, MapParameter, SsdConfig
from mindspore_rec.common.tiers.config import MAX_PREFETCH

SSD: dict[str, Any] = {"host_rows": 10, "ssd": SsdConfig("rows")}
REMOTE: dict[str, Any] = {"host_rows": 10, "remote": "redis://localhost:6379/0"}


@pytest.mark.parametrize(
    "arguments",
    [
        SSD,
        REMOTE,
        {"device_rows": 5},
        {"device_rows": 5, **SSD},
        {**REMOTE, "remote_rows": 20, "ssd": SsdConfig("rows", 1 << 30), "policy": "lfu"},
        {"host_bytes": 1 << 20, "ssd": SsdConfig(Path("rows"), direct=False), "prefetch": 0},
        {**REMOTE, "leftover": "keep"},
        {"host_rows": 10, "remote": "rediss://u:p@host:1/2"},
        {"host_rows": 10, "remote": "redis+cluster://a:7000,b:7001"},
        {**SSD, "host_rows": np.int64(10)},
    ],
)
def test_combinations_that_make_sense(arguments: dict[str, Any]) -> None:
    config = CacheConfig(**arguments)
    for name, value in arguments.items():
        assert getattr(config, name) == value
    assert config.has_lower_tier == ("remote" in arguments or "ssd" in arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of device_rows, remote and ssd must be given"),
        ({"policy": "lfu"}, "one of device_rows, remote and ssd must be given"),
        ({"host_rows": 10}, "host_rows must be left out without remote and ssd"),
        ({"host_bytes": 10}, "host_bytes must be left out without remote and ssd"),
        ({"device_rows": 5, "host_rows": 10}, "host_rows must be left out without remote"),
        ({**SSD, "host_bytes": 10}, "host_bytes must be left out with host_rows"),
        ({"ssd": SsdConfig("rows")}, "host_rows or host_bytes must be given with ssd"),
        ({"remote": "redis://h:1"}, "host_rows or host_bytes must be given with remote"),
        ({**SSD, "remote_rows": 3}, "remote_rows must be left out without remote"),
        ({**REMOTE, "remote_rows": 3}, "remote_rows must be left out without ssd"),
        ({"device_rows": 5, "leftover": "keep"}, "leftover must be left out"),
        ({**SSD, "host_rows": 0}, r"host_rows must be in \[1, \d+\], got 0"),
        ({"device_rows": 0}, r"device_rows must be in \[1, \d+\], got 0"),
        ({**SSD, "prefetch": -1}, r"prefetch must be in \[0, 64\], got -1"),
        ({**SSD, "prefetch": MAX_PREFETCH + 1}, r"prefetch must be in \[0, 64\], got 65"),
        ({**SSD, "policy": "fifo"}, "policy must be one of 'lru', 'lfu', got 'fifo'"),
        ({**SSD, "leftover": "x"}, "leftover must be one of 'refuse', 'discard', 'keep'"),
        ({**REMOTE, "remote": "http://h:1"}, "remote must be a URL of Redis"),
        ({**REMOTE, "remote": "redis"}, "remote must be a URL of Redis"),
        ({**REMOTE, "remote": "redis://"}, "remote must be a URL of Redis"),
    ],
)
def test_value_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CacheConfig(**arguments)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("host_rows", 1.5),
        ("host_rows", True),
        ("device_rows", "7"),
        ("prefetch", 2.0),
        ("prefetch", None),
        ("policy", 1),
        ("ssd", "rows"),
        ("leftover", None),
        ("remote", 6379),
    ],
)
def test_type_errors(argument: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{argument} must be"):
        CacheConfig(**{**SSD, argument: value})


def test_every_pair_of_limits_is_legal_or_refused_by_name() -> None:
    # Whatever is combined, a refusal names an argument that was given or is needed.
    values: dict[str, Any] = {
        "device_rows": 5, "host_rows": 10, "host_bytes": 4096, "remote": "redis://h:1",
        "remote_rows": 7, "ssd": SsdConfig("rows"),
    }  # fmt: skip
    legal = 0
    for count in range(len(values) + 1):
        for names in itertools.combinations(values, count):
            try:
                config = CacheConfig(**{name: values[name] for name in names})
            except ValueError as error:
                assert any(name in str(error) for name in values)
                continue
            legal += 1
            limited = "host_rows" in names or "host_bytes" in names
            assert limited == config.has_lower_tier
            assert limited or names == ("device_rows",)
    # device or not, host_rows or host_bytes; below: remote; SSD; both, with or without
    # remote_rows; and the device alone.
    assert legal == 2 * 2 * (1 + 1 + 2) + 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"path": ""}, ValueError, "path must not be empty, got ''"),
        ({"path": "a\0b"}, ValueError, "path must have no NUL, got "),
        ({"path": 7}, TypeError, "path must be a str or path, got 7"),
        ({"path": b"rows"}, TypeError, "path must be a str or path, got b'rows'"),
        ({"max_bytes": -1}, ValueError, r"max_bytes must be in \[1, \d+\], got -1"),
        ({"max_bytes": 1e9}, TypeError, "max_bytes must be an int"),
        ({"direct": 1}, TypeError, "direct must be a bool, got 1"),
    ],
)
def test_arguments_of_the_ssd_tier(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        SsdConfig(**{"path": "rows", **arguments})


OLD: dict[str, Any] = {"ssd_path": Path("rows"), "ssd_bytes": 1 << 30, "ssd_direct": False}
NEW = SsdConfig("rows", max_bytes=1 << 30, direct=False)


def warned(make: Callable[[], CacheConfig]) -> tuple[CacheConfig, list[str]]:
    """Return the config, and the old arguments that are warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = make()
    assert all(each.category is DeprecationWarning for each in caught)
    assert all(each.filename == __file__ for each in caught)
    assert all("use ssd=SsdConfig(path" in str(each.message) for each in caught)
    return config, [str(each.message).split()[2] for each in caught]


def test_old_arguments_of_the_ssd_tier() -> None:
    config, old = warned(lambda: CacheConfig(host_rows=10, **OLD))
    assert config == CacheConfig(host_rows=10, ssd=NEW) and old == list(OLD)
    assert (config.ssd_path, config.ssd_bytes, config.ssd_direct) == ("rows", 1 << 30, False)
    by_position: Any = (5, 10, None, None, None, "rows", 1 << 30, "lfu", 1, "keep", False)
    config, old = warned(lambda: CacheConfig(*by_position))
    assert old == list(OLD)
    assert config == CacheConfig(5, 10, ssd=NEW, policy="lfu", prefetch=1, leftover="keep")


def test_old_arguments_change_a_config() -> None:
    before = CacheConfig(host_rows=10, ssd=NEW)
    path: dict[str, Any] = {"ssd_path": "other"}
    config, old = warned(lambda: dataclasses.replace(before, **path))
    assert old == ["ssd_path"]
    assert config.ssd == SsdConfig("other", max_bytes=1 << 30, direct=False)
    none: dict[str, Any] = {"ssd_path": None, "ssd_direct": True, "remote": "redis://h:1"}
    config, _ = warned(lambda: dataclasses.replace(before, **none))
    assert config == CacheConfig(host_rows=10, remote="redis://h:1")
    assert (config.ssd_path, config.ssd_bytes, config.ssd_direct) == (None, None, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ssd_bytes": 1 << 30}, "ssd_bytes must be left out without ssd_path"),
        ({"ssd_direct": False}, "ssd_direct must be left out without ssd_path"),
        ({"ssd_path": ""}, "path must not be empty"),
    ],
)
def test_old_arguments_are_refused_as_before(arguments: dict[str, Any], message: str) -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(ValueError, match=message):
        CacheConfig(**REMOTE, **arguments)


def test_frozen_equal_and_silent_about_the_password() -> None:
    config = CacheConfig(host_rows=10, remote="redis://user:secret@host:6379")
    assert config == dataclasses.replace(config)
    assert "secret" not in repr(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.host_rows = 20  # type: ignore[misc]
    with pytest.raises(ValueError, match="remote must be") as raised:
        CacheConfig(host_rows=10, remote="http://user:secret@host")
    assert "secret" not in str(raised.value)


def test_cache_must_be_a_config() -> None:
    cache: Any = {"host_rows": 10}
    with pytest.raises(TypeError, match="cache must be a CacheConfig or None"):
        MapParameter("cache_config.map", cache=cache)
    with pytest.raises(TypeError, match="cache must be a CacheConfig or None"):
        HashEmbeddingLookup(2, name="cache_config.hash", cache=cache)
    MapParameter("cache_config.map").close()  # the name was not taken
