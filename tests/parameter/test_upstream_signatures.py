# SPDX-License-Identifier: Apache-2.0
"""The signatures after MindSpore, MindRec and Rec SDK: their names, order and defaults."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import mindspore as ms
import pytest
from mindspore import nn
from mindspore.experimental import MapParameter as UpstreamMapParameter

from mindspore_rec import (
    EmbeddingBag,
    EmbeddingLookup,
    GroupedEmbedding,
    HashEmbeddingLookup,
    MapParameter,
    StaticParameter,
    TableConfig,
    convert,
    create_table,
)
from mindspore_rec.train.parameter.upstream import REQUIRED

NEVER = sys.maxsize


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Names and defaults without `self`; what is required without `config` has no default."""
    given = inspect.signature(function).parameters.values()
    return {
        p.name: inspect.Parameter.empty if p.default is REQUIRED else p.default
        for p in given
        if p.name != "self" and p.kind is not p.VAR_KEYWORD
    }


def test_map_parameter_has_mindspores_arguments() -> None:
    ours = parameters(MapParameter.__init__)
    upstream = parameters(UpstreamMapParameter.__init__) | parameters(UpstreamMapParameter.__new__)
    upstream.pop("cls")
    assert dict(list(ours.items())[: len(upstream)]) == upstream
    assert list(ours)[: len(upstream)] == list(upstream)


def test_embedding_lookup_has_mindspores_arguments() -> None:
    ours, upstream = parameters(EmbeddingLookup.__init__), parameters(nn.EmbeddingLookup.__init__)
    assert list(ours.items())[: len(upstream)] == list(upstream.items())


REQUIRED_THERE = inspect.Parameter.empty


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            HashEmbeddingLookup.__init__,
            {
                "embedding_size": REQUIRED_THERE,
                "key_dtype": ms.int32,
                "param_init": "normal",
                "sparse": True,
                "max_norm": None,
                "permit_filter_value": 1,
                "evict_filter_value": NEVER,
                "vocab_cache_size": 0,
            },
        ),
        (
            create_table,
            {
                "key_dtype": REQUIRED_THERE,
                "dim": REQUIRED_THERE,
                "name": REQUIRED_THERE,
                "emb_initializer": REQUIRED_THERE,
                "device_vocabulary_size": 0,
                "host_vocabulary_size": 0,
                "ssd_vocabulary_size": 0,
                "ssd_data_path": None,
                "optimizer": None,
            },
        ),
        (
            StaticParameter.__init__,
            {
                "vocab_size": REQUIRED_THERE,
                "embedding_dim": REQUIRED_THERE,
                "param_init": "normal",
            },
        ),
        (EmbeddingBag.__init__, {"config": None, "mode": "sum"}),
        (GroupedEmbedding.__init__, {"tables": REQUIRED_THERE}),
        (convert, {"net": REQUIRED_THERE}),
    ],
)
def test_positional_arguments_stay(function, expected) -> None:
    signature = inspect.signature(function).parameters.values()
    positional = [p.name for p in signature if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [name for name in positional if name != "self"] == list(expected)
    assert {name: parameters(function)[name] for name in expected} == expected


MAKERS = [
    MapParameter.__init__,
    StaticParameter.__init__,
    HashEmbeddingLookup.__init__,
    EmbeddingLookup.__init__,
    GroupedEmbedding.__init__,
    create_table,
    convert,
]


@pytest.mark.parametrize("function", MAKERS, ids=lambda f: f.__qualname__)
def test_every_maker_takes_a_config_and_no_description_of_any_kind(function) -> None:
    given = inspect.signature(function).parameters
    assert given["config"].kind is inspect.Parameter.KEYWORD_ONLY
    assert given["config"].default is None
    # What create_table takes as `unknown` is refused, with what to use instead.
    assert not [p for p in given.values() if p.kind is p.VAR_KEYWORD and p.name != "unknown"]


@pytest.mark.parametrize("function", MAKERS, ids=lambda f: f.__qualname__)
def test_the_defaults_of_the_signatures_are_those_of_the_config(function) -> None:
    """Arguments named as a field have its default; `key_dtype` has upstream's int32 or none."""
    fields = inspect.signature(TableConfig).parameters
    for name, default in parameters(function).items():
        if name in fields and name not in ("key_dtype", "value_dtype", "seed"):
            wanted = REQUIRED_THERE if default is REQUIRED_THERE else fields[name].default
            assert default == wanted, name
        if name == "seed":
            assert default in (0, None)
