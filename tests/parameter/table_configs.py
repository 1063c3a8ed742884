# SPDX-License-Identifier: Apache-2.0
"""Descriptions of tables for tests, what a table does, and tables spelled out by fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import strategies as st
from mindspore import nn
from mindspore.common.initializer import Normal

from mindspore_rec import (
    CacheConfig,
    CountAdmission,
    EmbeddingBag,
    Eviction,
    GroupedEmbedding,
    HashEmbeddingLookup,
    MapParameter,
    ProbabilityAdmission,
    SketchAdmission,
    SsdConfig,
    TableConfig,
    convert,
    create_table,
)
from tests.support.native_table import native_of

DIM = 4
# Field by field what differs from a plain table; `name` and `dim` differ in every test.
HASH_FIELDS: list[dict[str, Any]] = [
    {},
    {"key_dtype": ms.int32},
    {"initializer": 0.5},
    {"initializer": "ones"},
    {"initializer": "xavier_uniform"},
    {"initializer": Normal(0.3)},
    {"seed": 7},
    {"requires_grad": False},
    {"admission": CountAdmission(3)},
    {"admission": SketchAdmission(2, sketch_bytes=1 << 16)},
    {"admission": ProbabilityAdmission(0.5)},
    {"eviction": Eviction(max_idle_steps=2)},
    {"eviction": Eviction(max_rows=5, order="lfu")},
    {"unknown_value": 0.25},
    {"unknown_value": (1.0, 2.0, 3.0, 4.0)},
    {"serving_unknown_value": -1.5},
    {"cache": CacheConfig(device_rows=64)},
    {"cache": CacheConfig(host_rows=64, ssd=SsdConfig("rows"), leftover="discard")},
]
STATIC_FIELDS: list[dict[str, Any]] = [
    {},
    {"initializer": 0.5},
    {"initializer": "xavier_uniform"},
    {"seed": 7},
    {"requires_grad": False},
    {"out_of_range": "zeros"},
    {"cache": CacheConfig(device_rows=64)},
    {"cache": CacheConfig(host_rows=64, ssd=SsdConfig("rows"), leftover="discard")},
]


def fields_id(fields: Any) -> str:
    """A test's name after the fields, or after the maker, it is about."""
    if isinstance(fields, str):
        return fields
    return ",".join(f"{name}={type(value).__name__}" for name, value in fields.items()) or "plain"


def plain(**fields: Any) -> TableConfig:
    """A config of the tests' row size."""
    return TableConfig(fields.pop("embedding_dim", DIM), **fields)


# ---- what a table does


BATCHES = [[1, 2, 3], [1, 2, 2, 4, 9], [1, 1, 5], [6, 7, 8], [1, 10, 11], [3, 3, 3, 12]]


def behaviour(table: Any) -> list[Any]:
    """Return settings of a table, rows of training and evaluation lookups, counts, evictions."""
    native = native_of(table)
    shown: list[Any] = [table.name, table.dim, table.key_dtype, table.requires_grad, table.cache]
    if table.device is not None:  # rows there are trained by optimizers of Python
        shown.append(table.device.rows)
    elif table.requires_grad:
        native.bind_optimizer("adam")
        for ids in BATCHES:
            rows, ticket = native.lookup_train(np.array(ids, np.int64))
            shown.append(rows.tobytes())
            native.accumulate(ticket, np.ones_like(rows))
            native.apply(0.1)
    shown.append(native.lookup(np.arange(14, dtype=np.int64)).tobytes())
    try:
        shown.append(native.lookup(np.array([99], np.int64)).tolist())
    except ValueError as error:
        shown.append(str(error))
    if isinstance(table, MapParameter):
        shown += [native.explain(key) for key in range(14)]
        shown += [table.admission, table.eviction, table.seed, table.value_shape]
        shown += [table.permit_filter_value, table.evict_filter_value]
    else:
        shown += [table.vocab_size, table.out_of_range]
    return shown


def behaviour_of(make: Callable[[], Any]) -> list[Any]:
    table = make()
    try:
        return behaviour(table)
    finally:
        table.close()


def renamed(fields: dict[str, Any], **names: str) -> dict[str, Any]:
    return {names.get(field, field): value for field, value in fields.items()}


# The makers by both spellings: of a table's fields, and of its config.
def by_map_parameter(name: str, fields: dict[str, Any]) -> Any:
    spelled = {"key_dtype": ms.int64} | renamed(fields, initializer="default_value")
    return MapParameter(name, value_shape=DIM, **spelled)


def by_hash_lookup(name: str, fields: dict[str, Any]) -> Any:
    spelled = {"key_dtype": ms.int64} | renamed(fields, initializer="param_init")
    return HashEmbeddingLookup(DIM, name=name, **spelled).embedding_table


def by_bag(name: str, fields: dict[str, Any]) -> Any:
    spelled = {"key_dtype": ms.int64} | renamed(fields, initializer="param_init")
    with pytest.warns(DeprecationWarning, match="use EmbeddingBag.TableConfig"):
        return EmbeddingBag(DIM, "mean", **(spelled | {"name": name})).embedding_table  # type: ignore[arg-type]


def by_static_bag(name: str, fields: dict[str, Any]) -> Any:
    spelled: dict[str, Any] = {"vocab_size": 20, "name": name}
    spelled |= renamed(fields, initializer="param_init")
    with pytest.warns(DeprecationWarning, match="use EmbeddingBag.TableConfig"):
        return EmbeddingBag(DIM, **spelled)  # type: ignore[arg-type]


def by_create_table(name: str, fields: dict[str, Any]) -> Any:
    spelled = renamed(
        fields,
        initializer="emb_initializer",
        unknown_value="default_value",
        serving_unknown_value="serving_default_value",
    )
    if isinstance(spelled.get("default_value"), tuple):
        spelled["default_value"] = np.array(spelled["default_value"], np.float32)
    spelled = {"key_dtype": ms.int64, "emb_initializer": "normal"} | spelled
    return create_table(dim=DIM, name=name, **spelled)


def by_grouped(name: str, fields: dict[str, Any]) -> Any:
    return GroupedEmbedding([by_map_parameter(name, fields)]).tables[0]


def by_convert(name: str, fields: dict[str, Any]) -> Any:
    net = nn.SequentialCell(nn.Embedding(16, DIM))
    net[0].embedding_table.requires_grad = fields.get("requires_grad", True)
    spelled = renamed(fields, initializer="param_init")
    spelled.pop("requires_grad", None)
    admission = spelled.pop("admission", None)
    if admission is not None:
        spelled["permit_filter_value"] = admission.threshold
    eviction = spelled.pop("eviction", None)
    if eviction is not None:
        spelled["evict_filter_value"] = eviction.max_idle_steps
    convert(net, prefix=name, keep_weights=False, **spelled)
    return net[0].embedding_table


def convert_by_config(config: TableConfig) -> Any:
    net = nn.SequentialCell(nn.Embedding(16, DIM))
    nameless = dataclasses.replace(config, name=None)
    convert(net, prefix=config.name or "", keep_weights=False, config=nameless)
    return net[0].embedding_table


# On Arm, MindSpore makes the processor take denormal numbers for zeros, and then Hypothesis refuses
# to draw them.
DENORMAL = None if np.float32(1e-40) != 0 else False
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "key_dtype": st.sampled_from([ms.int32, ms.int64]),
        "initializer": st.sampled_from([0, -1.5, "normal", "uniform", "truncated_normal"]),
        "seed": st.integers(0, (1 << 64) - 1),
        "requires_grad": st.booleans(),
        "admission": st.sampled_from([CountAdmission(2), ProbabilityAdmission(0.3)]),
        "eviction": st.sampled_from([Eviction(max_idle_steps=1), Eviction(max_rows=3)]),
        "unknown_value": st.sampled_from([0.5, (1.0, 2.0, 3.0, 4.0)]),
        "serving_unknown_value": st.floats(-10, 10, width=32, allow_subnormal=DENORMAL),
    },
)

HASH, STATIC = TableConfig(DIM), TableConfig(DIM, vocab_size=9)
