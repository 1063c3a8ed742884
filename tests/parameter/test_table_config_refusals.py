# SPDX-License-Identifier: Apache-2.0
"""Makers of tables refuse a table described twice, and configs that do not fit them."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

import mindspore_rec
from mindspore_rec import (
    CacheConfig,
    CountAdmission,
    EmbeddingBag,
    EmbeddingLookup,
    Eviction,
    GroupedEmbedding,
    HashEmbeddingLookup,
    MapParameter,
    SsdConfig,
    StaticParameter,
    convert,
    create_table,
)
from mindspore_rec.nn import TableLookup
from tests.parameter.table_configs import (
    DIM,
    HASH,
    STATIC,
    plain,
)

NO_CONFIG: Any = 8


OLD_BAG: Any = EmbeddingBag  # which takes arguments of earlier versions too


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: MapParameter("name", config=HASH), "name"),
        (lambda: MapParameter(requires_grad=False, config=HASH), "requires_grad"),
        (lambda: MapParameter(key_dtype=ms.int64, config=HASH), "key_dtype"),
        (lambda: MapParameter(value_dtype=ms.float32, config=HASH), "value_dtype"),
        (lambda: MapParameter(default_value=0.5, config=HASH), "default_value"),
        (lambda: MapParameter(permit_filter_value=2, config=HASH), "permit_filter_value"),
        (lambda: MapParameter(evict_filter_value=2, config=HASH), "evict_filter_value"),
        (lambda: MapParameter(seed=1, config=HASH), "seed"),
        (lambda: MapParameter(admission=CountAdmission(1), config=HASH), "admission"),
        (lambda: MapParameter(eviction=Eviction(max_rows=1), config=HASH), "eviction"),
        (lambda: MapParameter(unknown_value=np.zeros(4), config=HASH), "unknown_value"),
        (lambda: MapParameter(serving_unknown_value=0, config=HASH), "serving_unknown_value"),
        (lambda: MapParameter(cache=CacheConfig(device_rows=9), config=HASH), "cache"),
        (lambda: HashEmbeddingLookup(DIM, config=HASH), "embedding_size"),
        (lambda: HashEmbeddingLookup(key_dtype=ms.int64, config=HASH), "key_dtype"),
        (lambda: HashEmbeddingLookup(param_init=Tensor([1.0]), config=HASH), "param_init"),
        (lambda: OLD_BAG(DIM, config=HASH), "embedding_size"),
        (lambda: OLD_BAG(vocab_size=9, config=HASH), "vocab_size"),
        (lambda: OLD_BAG(name="a", config=STATIC), "name"),
        (lambda: StaticParameter(9, config=STATIC), "vocab_size"),
        (lambda: StaticParameter(out_of_range="zeros", config=STATIC), "out_of_range"),
        (lambda: EmbeddingLookup(embedding_size=DIM, config=STATIC), "embedding_size"),
        (lambda: EmbeddingLookup(vocab_cache_size=9, config=STATIC), "vocab_cache_size"),
        (lambda: EmbeddingLookup(dtype=ms.float16, config=STATIC), "dtype"),
        (lambda: create_table(ms.int64, config=HASH), "key_dtype"),
        (lambda: create_table(dim=DIM, config=HASH), "dim"),
        (lambda: create_table(name="a", config=HASH), "name"),
        (lambda: create_table(emb_initializer="ones", config=HASH), "emb_initializer"),
        (lambda: create_table(device_vocabulary_size=9, config=HASH), "device_vocabulary_size"),
        (lambda: create_table(ssd_data_path="rows", config=HASH), "ssd_data_path"),
        (lambda: create_table(default_value=1.0, config=HASH), "default_value"),
        (lambda: create_table(seed=0, config=HASH), "seed"),
        (lambda: convert(nn.Dense(1, 1), seed=1, config=HASH), "seed"),
        (lambda: convert(nn.Dense(1, 1), permit_filter_value=2, config=HASH), "permit_filter"),
        (lambda: convert(nn.Dense(1, 1), param_init="ones", config=HASH), "param_init"),
    ],
)
def test_what_is_given_twice_is_refused_by_name(make, argument) -> None:
    with pytest.raises(ValueError, match=f"^{argument}.*describes the table, as config does"):
        make()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: HashEmbeddingLookup(), TypeError, r"embedding_size must be given, or config="),
        (lambda: EmbeddingBag(), TypeError, r"EmbeddingBag must be given config=TableConfig"),
        (lambda: TableLookup(), TypeError, r"TableLookup must be given config=TableConfig"),
        (lambda: EmbeddingLookup(5), TypeError, r"embedding_size must be given, or config="),
        (lambda: StaticParameter(), TypeError, r"vocab_size must be given, or config="),
        (lambda: GroupedEmbedding(), TypeError, r"tables must be given, or config="),
        (lambda: create_table(ms.int64, 4, "n"), TypeError, "emb_initializer must be given, or"),
        (lambda: MapParameter(config=NO_CONFIG), TypeError, "config must be a TableConfig, got 8"),
        (
            lambda: GroupedEmbedding(config=[NO_CONFIG]),
            TypeError,
            "config must hold TableConfigs, got int",
        ),
        (lambda: MapParameter(config=STATIC), ValueError, "no vocab_size for a MapParameter"),
        (lambda: HashEmbeddingLookup(config=STATIC), ValueError, "no vocab_size for a HashEmb"),
        (lambda: create_table(config=STATIC), ValueError, "no vocab_size for a table of create_t"),
        (lambda: create_table(config=HASH), ValueError, "config must have a name for create_tab"),
        (lambda: StaticParameter(config=HASH), ValueError, "must have a vocab_size for a Static"),
        (lambda: EmbeddingLookup(config=HASH), ValueError, "must have a vocab_size for a"),
        (lambda: EmbeddingLookup(config=STATIC, target="DEVICE"), ValueError, "must be 'CPU' with"),
        (lambda: EmbeddingBag(config=STATIC, faae_coefficient=2), ValueError, "faae_coefficient"),
        (lambda: MapParameter(config=HASH, value_shape=3), ValueError, r"value_shape must .*dim=4"),
        (lambda: GroupedEmbedding(config=[]), ValueError, "tables must have at least one table"),
        (lambda: GroupedEmbedding([], config=[HASH]), ValueError, "tables must be left out"),
        (
            lambda: GroupedEmbedding(config=[plain(name="twice"), plain(name="twice")]),
            ValueError,
            "config must have different names, got 'twice' twice",
        ),
    ],
)
def test_what_does_not_fit_a_maker_is_refused(make, error, message) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_shared_table_is_described_by_nothing(unique) -> None:
    table = MapParameter(config=plain(name=unique()))
    assert HashEmbeddingLookup(table=table).embedding_table is table
    assert EmbeddingBag(table=table).embedding_table is table
    for make in (HashEmbeddingLookup, EmbeddingBag):
        with pytest.raises(ValueError, match="config describes a new table; with table="):
            make(table=table, config=HASH)
    with pytest.raises(ValueError, match="config describes a new table; with table="):
        TableLookup(HASH, table=table)
    wrong: Any = 8
    with pytest.raises(TypeError, match="table must be a HashTable or StaticParameter, got int"):
        TableLookup(table=wrong)
    table.close()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (plain(name="a"), "config must have no name, got 'a'"),
        (plain(vocab_size=9), "config must have no vocab_size"),
        (plain(embedding_dim=3), r"the dim of the embeddings converted: '0' has 4, config 3"),
    ],
)
def test_a_conversion_refuses_what_embeddings_say(config, message) -> None:
    net = nn.SequentialCell(nn.Embedding(12, DIM))
    with pytest.raises(ValueError, match=message):
        convert(net, config=config)
    assert type(net[0]) is nn.Embedding


def test_a_static_conversion_refuses_what_is_of_hash_tables(unique) -> None:
    net = nn.SequentialCell(nn.Embedding(12, DIM))
    for config in (plain(admission=CountAdmission(2)), plain(initializer="ones")):
        with pytest.raises(ValueError, match="admission is for hash tables|initializer of config"):
            convert(net, kind="static", prefix=unique(), config=config)
    assert type(net[0]) is nn.Embedding


def test_a_group_whose_second_table_cannot_be_made_makes_none(unique, tmp_path) -> None:
    first, second = unique(), unique()
    cache = CacheConfig(host_rows=9, ssd=SsdConfig(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("no directory")
    configs = [plain(name=first), plain(name=second, cache=cache)]
    with pytest.raises(OSError):
        GroupedEmbedding(config=configs)
    for name in (first, second):
        mindspore_rec._native.Table(name=name, dim=1).close()  # the name is free
