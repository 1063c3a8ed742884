# SPDX-License-Identifier: Apache-2.0
"""TableConfig itself: frozen, compared by what it describes, and what it refuses."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given
from mindspore import Tensor
from mindspore.common.initializer import Normal

from mindspore_rec import CacheConfig, CountAdmission, Eviction, TableConfig
from tests.parameter.table_configs import CONFIGS, DIM, plain


@given(fields=CONFIGS)
def test_configs_are_equal_where_their_fields_are(fields: dict[str, Any]) -> None:
    config = TableConfig(DIM, **fields)
    assert config == TableConfig(DIM, **fields) and config == copy.deepcopy(config)
    assert hash(config) == hash(TableConfig(DIM, **fields))
    assert config != dataclasses.replace(config, name="other")
    assert config != dataclasses.replace(config, embedding_dim=1, unknown_value=None)


def test_equality_is_of_what_the_initializer_draws() -> None:
    assert plain(initializer=Normal(0.3)) == plain(initializer=Normal(0.3))
    assert plain(initializer=Normal(0.3)) != plain(initializer=Normal(0.2))
    assert plain(initializer="zeros") == plain(initializer=0.0) != plain(initializer=1.0)
    assert plain(initializer="xavier_uniform") != plain(
        initializer="xavier_uniform", embedding_dim=8
    )
    assert plain() != "a config" and {plain(): 1}[plain()] == 1


def test_a_config_is_frozen_and_rows_of_numbers_are_copied() -> None:
    row = np.ones(DIM, np.float32)
    config = plain(unknown_value=row)
    row[:] = 7
    assert config.unknown_value == (1.0, 1.0, 1.0, 1.0)
    assert plain(unknown_value=Tensor(np.ones(DIM, np.float32))) == config
    for field in dataclasses.fields(config):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, field.name, None)


def test_repr_shows_what_is_not_default_and_no_password() -> None:
    assert repr(plain()) == "TableConfig(4)"
    assert repr(plain(name="n", seed=3)) == "TableConfig(4, name='n', seed=3)"
    assert "normal" in repr(plain(initializer=Normal(0.3)))
    cache = CacheConfig(host_rows=5, remote="redis://:secret@host")
    assert "secret" not in repr(plain(cache=cache)) and "host_rows=5" in repr(plain(cache=cache))


def test_only_dim_is_positional_so_that_fields_can_be_added() -> None:
    with pytest.raises(TypeError, match="positional"):
        TableConfig(4, "name")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"embedding_dim": 0}, ValueError, r"embedding_dim must be in \[1, 8192\], got 0"),
        ({"embedding_dim": 8193}, ValueError, r"embedding_dim must be in \[1, 8192\], got 8193"),
        ({"embedding_dim": (2, 2)}, TypeError, r"embedding_dim must be an int, got \(2, 2\)"),
        ({"name": ""}, TypeError, "name must be a non-empty str, got ''"),
        ({"name": 7}, TypeError, "name must be a non-empty str, got 7"),
        ({"name": "n", "embedding_dim": 0}, ValueError, "table 'n': embedding_dim must be in"),
        ({"key_dtype": ms.float32}, TypeError, "key_dtype must be int32 or int64, got Float32"),
        ({"key_dtype": None}, TypeError, "key_dtype must be int32 or int64, got None"),
        (
            {"value_dtype": ms.int8},
            ValueError,
            "value_dtype must be float32, bfloat16 or float16, got Int8",
        ),
        (
            {"state_dtype": ms.float16},
            ValueError,
            "state_dtype must be float32 or bfloat16, got Float16",
        ),
        (
            {"accumulator_dtype": ms.float16},
            ValueError,
            "accumulator_dtype must be float32 or bfloat16, got Float16",
        ),
        (
            {"rounding": "up"},
            ValueError,
            "rounding must be one of 'stochastic', 'nearest', got 'up'",
        ),
        ({"initializer": "gamma"}, ValueError, "initializer must be a number, or 'normal'"),
        ({"initializer": None}, TypeError, "initializer must be a number, or 'normal'"),
        ({"initializer": np.nan}, ValueError, "initializer must be finite, got nan"),
        ({"seed": -1}, ValueError, r"seed must be in \[0, 18446744073709551615\], got -1"),
        ({"seed": 1.0}, TypeError, "seed must be an int, got 1.0"),
        ({"requires_grad": 1}, TypeError, "requires_grad must be a bool, got 1"),
        ({"admission": 2}, TypeError, "admission must be a CountAdmission, Sketch"),
        ({"eviction": 60}, TypeError, "eviction must be an Eviction, got 60"),
        ({"unknown_value": "zeros"}, TypeError, "unknown_value must be a number, got 'zeros'"),
        ({"unknown_value": (1, 2)}, ValueError, "unknown_value must be a number or 4 numbers"),
        ({"serving_unknown_value": np.inf}, ValueError, "serving_unknown_value must be finite"),
        ({"vocab_size": 0}, ValueError, r"vocab_size must be in \[1, 34359738368\], got 0"),
        ({"vocab_size": 9, "admission": CountAdmission(2)}, ValueError, "admission is for hash ta"),
        ({"vocab_size": 9, "eviction": Eviction(max_rows=2)}, ValueError, "eviction is for hash "),
        ({"vocab_size": 9, "unknown_value": 1}, ValueError, "unknown_value is for hash tables"),
        ({"vocab_size": 9, "serving_unknown_value": 1}, ValueError, "serving_unknown_value is for"),
        ({"vocab_size": 9, "key_dtype": ms.int32}, ValueError, "key_dtype is for hash tables"),
        ({"vocab_size": 9, "out_of_range": "wrap"}, ValueError, "out_of_range must be one of 'err"),
        ({"out_of_range": "zeros"}, ValueError, "out_of_range must be left out without vocab_size"),
        ({"cache": {"host_rows": 9}}, TypeError, "cache must be a CacheConfig or None"),
    ],
)
def test_a_field_that_is_wrong_is_named(fields, error, message) -> None:
    with pytest.raises(error, match=message):
        plain(**fields)
