# SPDX-License-Identifier: Apache-2.0
"""Sizes of a row from the native core are those that a table, its tiers and capacities use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mindspore_rec import _native
from mindspore_rec.compat.cache_of_sizes import cache_of_sizes
from mindspore_rec.plan import OPTIMIZERS, row_bytes
from tests.cache.native_calls import MemoryTier

RULES = ("sgd", "momentum", "adagrad", "row_wise_adagrad", "adam", "adamw", "ftrl", "rmsprop")


@pytest.fixture
def table(unique: Callable[[], str]) -> Iterator[_native.Table]:
    made = _native.Table(name=unique(), dim=6)
    yield made
    made.close()


def fill(table: _native.Table, rows: int) -> None:
    table.put(np.arange(rows), np.ones((rows, table.dim), np.float32))


@pytest.mark.parametrize("rule", RULES)
def test_the_parts_of_a_row_are_those_of_a_table(table: _native.Table, rule: str) -> None:
    table.bind_optimizer(rule)
    fill(table, 1000)
    stats = table.stats()
    sizes = _native.row_sizes(6, stats["state_width"])
    assert _native.state_width(rule, 6) == stats["state_width"]
    assert sizes.metadata * 1000 == stats["metadata_bytes"]
    rows = table.export_rows(with_state=True)
    assert sizes.value * 1000 == rows["values"].nbytes
    assert sizes.state * 1000 == rows["states"].nbytes
    assert sizes.block == sizes.metadata + sizes.value + sizes.state
    assert stats["row_bytes"] >= sizes.block * 1000
    assert stats["row_bytes"] % sizes.block == 0


def test_centered_rmsprop_has_one_more_state(table: _native.Table) -> None:
    table.bind_optimizer("rmsprop", centered=True)
    assert _native.state_width("rmsprop", 6, centered=True) == table.device_state_width == 18


def test_the_index_takes_about_what_is_said(table: _native.Table) -> None:
    for rows in (50_000, 80_000, 120_000, 170_000):
        fill(table, rows)
        assert 0.75 <= table.stats()["index_bytes"] / rows / _native.row_sizes(6).index <= 1.25


@pytest.mark.parametrize("host_bytes", [10_000, 54_321])
def test_a_tiered_table_holds_so_many_rows_of_its_host_bytes(
    table: _native.Table, host_bytes: int
) -> None:
    tiers: list[MemoryTier] = []

    def open_tier(row_bytes: int, generation: int) -> MemoryTier:
        tiers.append(MemoryTier(row_bytes))
        return tiers[-1]

    table.set_cache(host_bytes=host_bytes, levels=[{"kind": "remote", "open": open_tier}])
    table.bind_optimizer("adam")
    sizes = _native.row_sizes(6, 12)
    capacity = host_bytes // sizes.in_host(tiered=True)
    for first in range(0, 2000, 20):
        table.put(np.arange(first, first + 20), np.ones((20, 6), np.float32))
    stats = table.stats()
    assert stats["host_capacity_rows"] == stats["host_rows"] == capacity
    assert sizes.in_host(tiered=True) == sizes.in_host() + sizes.pin
    assert tiers[-1].row_bytes == sizes.block


def test_a_table_evicts_to_so_many_rows_of_its_bytes(unique: Callable[[], str]) -> None:
    sizes = _native.row_sizes(6)
    table = _native.Table(name=unique(), dim=6, max_bytes=sizes.in_host() * 100 + 1)
    table.bind_optimizer("sgd")
    fill(table, 500)
    table.evict()
    assert table.size() == 100
    table.close()


def test_an_ssd_tier_keeps_a_row_in_so_many_bytes(tmp_path: Path) -> None:
    sizes = _native.row_sizes(6, 12)
    rows = 200_000
    with _native.SsdStore(tmp_path, sizes.block) as store:
        blocks = np.zeros((rows, sizes.block), np.uint8)
        store.write(np.arange(rows), blocks)
        store.flush()
        stats = store.stats()
    # A record is padded to 8 bytes and has 12 in the footer of its segment.
    record = sizes.ssd_header + sizes.block
    assert rows * record <= stats["written_bytes"] <= rows * (record + 20) * 1.01
    assert stats["index_bytes"] <= rows * sizes.ssd_index + 200_000


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_a_plan_counts_what_a_row_takes(optimizer: str) -> None:
    sizes = _native.row_sizes(6, OPTIMIZERS[optimizer](6))
    assert row_bytes(6, optimizer) == sizes.in_host() == sizes.block + sizes.index


def test_vocabulary_sizes_count_a_row_of_two_states_on_the_disk() -> None:
    config = cache_of_sizes("", 8, None, 0, 1000, 1_000_000, ["rows"])
    assert config is not None
    assert config.ssd_bytes == int(1.8 * 1_000_000 * (16 + 20 + 4 * 8 * 3))


@pytest.mark.parametrize("arguments", [(-1, 0), (4, -1)])
def test_sizes_below_zero_are_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        _native.row_sizes(*arguments)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="optimizer rule 'adamax' is unknown; legal: sgd"):
        _native.state_width("adamax", 4)
