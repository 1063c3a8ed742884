# SPDX-License-Identifier: Apache-2.0
"""Through every maker a TableConfig makes the table that the signature makes, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings
from mindspore import Tensor, nn

import mindspore_rec
from mindspore_rec import (
    CountAdmission,
    EmbeddingBag,
    EmbeddingLookup,
    Eviction,
    FeatureSpec,
    GroupedEmbedding,
    HashEmbeddingLookup,
    MapParameter,
    SsdConfig,
    StaticParameter,
    TableConfig,
    convert,
    create_table,
)
from tests.parameter.table_configs import (
    CONFIGS,
    DIM,
    HASH,
    HASH_FIELDS,
    STATIC,
    STATIC_FIELDS,
    behaviour_of,
    by_bag,
    by_convert,
    by_create_table,
    by_grouped,
    by_hash_lookup,
    by_map_parameter,
    by_static_bag,
    convert_by_config,
    fields_id,
    plain,
    renamed,
)
from tests.support.native_table import native_of


@pytest.fixture
def in_directory(tmp_path: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Puts the SSD tier of a description into the test's directory."""

    def place(fields: dict[str, Any]) -> dict[str, Any]:
        cache = fields.get("cache")
        if cache is None or cache.device_rows is not None:
            return fields
        return fields | {"cache": dataclasses.replace(cache, ssd=SsdConfig(tmp_path))}

    return place


HASH_MAKERS: dict[str, tuple[Any, Any]] = {
    "MapParameter": (by_map_parameter, lambda c: MapParameter(config=c)),
    "HashEmbeddingLookup": (by_hash_lookup, lambda c: HashEmbeddingLookup(config=c)),
    "EmbeddingBag": (by_bag, lambda c: EmbeddingBag(config=c, mode="mean")),
    "create_table": (by_create_table, lambda c: create_table(config=c)),
    "GroupedEmbedding": (by_grouped, lambda c: GroupedEmbedding(config=[c])),
    "convert": (by_convert, convert_by_config),
}
# What a maker's own signature cannot say.
UNSAID = {
    "HashEmbeddingLookup": {"requires_grad"},
    "EmbeddingBag": {"requires_grad"},
    "create_table": {"requires_grad"},
    "convert": {"unknown_value", "serving_unknown_value", "cache"},
}


def table_in(made: Any) -> Any:
    if isinstance(made, GroupedEmbedding):
        return made.tables[0]
    return made if hasattr(made, "anchor") else made.embedding_table


def sayable(maker: str, fields: dict[str, Any]) -> bool:
    """Whether the maker's own signature has arguments for these fields."""
    if maker == "convert":  # only by counts and by steps
        admission, eviction = fields.get("admission"), fields.get("eviction")
        if admission is not None and not isinstance(admission, CountAdmission):
            return False
        if eviction is not None and eviction.has_capacity:
            return False
    return not UNSAID.get(maker, set()) & set(fields)


@pytest.mark.parametrize(
    ("maker", "fields"),
    [(maker, fields) for maker in HASH_MAKERS for fields in HASH_FIELDS if sayable(maker, fields)],
    ids=fields_id,
)
def test_a_hash_table_by_config_is_that_of_the_signature(
    graph_mode, unique, in_directory, maker, fields
) -> None:
    name, spell, make = unique(), *HASH_MAKERS[maker]
    fields = in_directory(fields)
    config = TableConfig(DIM, name=name, **fields)
    spelled = behaviour_of(lambda: spell(name, fields))
    assert behaviour_of(lambda: table_in(make(config))) == spelled
    assert spelled[0].startswith(name)


STATIC_MAKERS: dict[str, tuple[Any, Any]] = {
    "StaticParameter": (
        lambda name, fields: StaticParameter(
            20, DIM, name=name, **renamed(fields, initializer="param_init")
        ),
        lambda c: StaticParameter(config=c),
    ),
    "EmbeddingLookup": (
        lambda name, fields: EmbeddingLookup(
            20, DIM, name=name, **renamed(fields, initializer="param_init")
        ),
        lambda c: EmbeddingLookup(config=c),
    ),
    "EmbeddingBag": (
        by_static_bag,
        lambda c: EmbeddingBag(config=c),
    ),
    "GroupedEmbedding": (
        lambda name, fields: GroupedEmbedding(
            [StaticParameter(20, DIM, name=name, **renamed(fields, initializer="param_init"))]
        ),
        lambda c: GroupedEmbedding(config=[c]),
    ),
}
STATIC_UNSAID = {
    "EmbeddingLookup": {"requires_grad"},
    "EmbeddingBag": {"requires_grad", "out_of_range"},
}


@pytest.mark.parametrize(
    ("maker", "fields"),
    [
        (maker, fields)
        for maker in STATIC_MAKERS
        for fields in STATIC_FIELDS
        if not STATIC_UNSAID.get(maker, set()) & set(fields)
    ],
    ids=fields_id,
)
def test_a_static_table_by_config_is_that_of_the_signature(
    graph_mode, unique, in_directory, maker, fields
) -> None:
    fields = in_directory(fields)
    name, spell, make = unique(), *STATIC_MAKERS[maker]
    config = TableConfig(DIM, name=name, vocab_size=20, **fields)
    spelled = behaviour_of(lambda: table_in(spell(name, fields)))
    assert behaviour_of(lambda: table_in(make(config))) == spelled


@pytest.mark.parametrize("keep_weights", [True, False])
@pytest.mark.parametrize("kind", ["hash", "static"])
def test_a_conversion_by_config_is_that_of_the_signature(unique, kind, keep_weights) -> None:
    prefix = unique()
    weights = np.random.default_rng(1).normal(size=(16, DIM)).astype(np.float32)

    def make(**arguments: Any) -> Any:
        net = nn.SequentialCell(nn.Embedding(16, DIM, embedding_table=Tensor(weights)))
        convert(net, prefix=prefix, kind=kind, keep_weights=keep_weights, **arguments)
        return net[0].embedding_table

    spelled = behaviour_of(lambda: make(seed=3))
    assert behaviour_of(lambda: make(config=TableConfig(DIM, seed=3))) == spelled


def test_a_conversion_may_freeze_its_tables(unique) -> None:
    net = nn.SequentialCell(nn.Embedding(16, DIM))
    before = net[0].embedding_table.asnumpy()
    convert(net, prefix=unique(), config=TableConfig(DIM, requires_grad=False))
    table = net[0].embedding_table
    assert not table.requires_grad and not net.trainable_params()
    np.testing.assert_array_equal(native_of(table).lookup(np.arange(16)), before)
    table.close()


@settings(max_examples=60)
@given(fields=CONFIGS)
def test_any_config_makes_the_table_of_its_fields(fields: dict[str, Any]) -> None:
    config = TableConfig(DIM, name="table_config.any", **fields)
    spelled = behaviour_of(lambda: by_map_parameter("table_config.any", fields))
    assert behaviour_of(lambda: MapParameter(config=config)) == spelled


def test_names_and_seeds_that_are_left_out(unique) -> None:
    tables = [
        MapParameter(config=HASH),
        HashEmbeddingLookup(config=HASH).embedding_table,
        StaticParameter(config=STATIC),
        *GroupedEmbedding(config=[HASH, HASH]).tables,
    ]
    assert len({table.name for table in tables}) == 5
    starts = ("map_parameter_", "hash_embedding_", "embedding_table_", "hash_embedding_")
    for table, start in zip(tables, starts, strict=False):
        assert table.name.startswith(start) and table.config.name == table.name
    for table in tables:
        table.close()
    with mindspore_rec.init(seed=7):
        assert create_table(config=plain(name=unique())).seed == 7
        assert create_table(config=plain(name=unique(), seed=0)).seed == 0
        assert MapParameter(config=HASH).seed == 0


def test_features_set_the_policies_of_a_config_without_them(unique) -> None:
    name = unique()
    spec = FeatureSpec("f", table_name=name, access_threshold=3)
    table = create_table(config=plain(name=name), specs=[spec], padding_keys=0)
    assert table.admission == CountAdmission(3) and table.padding_keys == (0,)
    table.close()
    with pytest.raises(ValueError, match="access_threshold=3, and table"):
        create_table(config=plain(name=name, admission=CountAdmission(2)), specs=[spec])


def test_a_clone_has_the_same_description_under_its_own_name(unique) -> None:
    config = plain(name=unique(), initializer=2.0, admission=CountAdmission(2), seed=9)
    table = MapParameter(config=config, value_shape=(2, 2))
    table.set_eviction(Eviction(max_rows=3))
    clone, other = table.clone(), table.clone(init=1.0)
    assert clone.config == dataclasses.replace(
        config, name=f"{table.name}.clone1", eviction=Eviction(max_rows=3)
    )
    assert (clone.value_shape, other.default_value) == ((2, 2), 1.0)
    with pytest.raises(ValueError, match="init must be a number"):
        table.clone(init="gamma")
    for each in (table, clone, other):
        each.close()


def test_rows_to_start_with_and_their_shape_go_beside_a_config(unique) -> None:
    keys, values = Tensor([3, 5], ms.int64), Tensor(np.ones((2, 2, 2), np.float32))
    table = MapParameter(config=plain(name=unique()), key_tensor=keys, value_tensor=values)
    assert table.value_shape == (2, 2) and table.row_count == 2
    table.close()
    with pytest.raises(ValueError, match="key_dtype and key_tensor.dtype must be the same"):
        MapParameter(config=plain(key_dtype=ms.int32), key_tensor=keys, value_tensor=values)
