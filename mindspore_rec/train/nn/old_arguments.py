# SPDX-License-Identifier: Apache-2.0
"""Arguments of the old `EmbeddingBag` that describe the table, now part of `TableConfig`."""

from __future__ import annotations

import sys
from typing import Any

import mindspore as ms

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.old_arguments import warn_of_old
from mindspore_rec.common.rows.policies import Admission, Eviction
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.train.nn.described import hash_config, shared_table
from mindspore_rec.train.nn.lookup import check_coefficient, check_padding_key
from mindspore_rec.train.parameter.static_parameter import StaticParameter
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.table_parameter import COMBINERS
from mindspore_rec.train.parameter.upstream import (
    REQUIRED,
    check_described_once,
    describing_arguments,
    given_arguments,
)

__all__ = ["DESCRIBING", "InConfig"]

DESCRIBING = (
    "embedding_size",
    "vocab_size",
    "key_dtype",
    "param_init",
    "permit_filter_value",
    "evict_filter_value",
    "name",
    "seed",
    "admission",
    "eviction",
    "unknown_value",
    "serving_unknown_value",
    "cache",
)
"""Arguments of an EmbeddingBag that described its table."""

_BESIDE = ("config", "table", "padding_key", "faae_coefficient")
_HASH_ONLY = (
    *("key_dtype", "permit_filter_value", "evict_filter_value", "table", "admission", "eviction"),
    *("unknown_value", "serving_unknown_value", "faae_coefficient"),
)


class InConfig:
    """Converts arguments of the old `EmbeddingBag` that describe the table to a `TableConfig`."""

    def apply(self, function: str, named: dict[str, Any]) -> None:
        """Replace the old arguments in `named` by the argument `config` or `table`.

        Raises:
            TypeError, ValueError: an argument is of the wrong type or out of range; or an argument
                describes a table, but `config` or `table` is set.
        """
        if isinstance(named.get("embedding_size"), TableConfig) and "config" not in named:
            named["config"] = named.pop("embedding_size")  # given by position
        old = {name: named.pop(name) for name in DESCRIBING if name in named}
        if not old:
            return
        others = {name: named[name] for name in _BESIDE if name in named}
        check_one_of("mode", named.get("mode", "sum"), tuple(COMBINERS))
        made = _of_arguments(**old, **others)
        warn_of_old(
            ", ".join(old), "use EmbeddingBag(TableConfig(dim, name=..., ...), mode) instead"
        )
        if isinstance(made, TableConfig):
            named["config"] = made
        elif made is not None:
            named["table"] = made


def _of_arguments(
    embedding_size: int = REQUIRED,
    *,
    vocab_size: int | None = None,
    key_dtype: Any = ms.int32,
    param_init: Any = "normal",
    padding_key: int | None = None,
    permit_filter_value: int = 1,
    evict_filter_value: int = sys.maxsize,
    name: str | None = None,
    table: Any = None,
    seed: int = 0,
    admission: Admission | None = None,
    eviction: Eviction | None = None,
    unknown_value: Any = None,
    serving_unknown_value: Any = None,
    faae_coefficient: int = 1,
    cache: CacheConfig | None = None,
    config: TableConfig | None = None,
) -> TableConfig | StaticParameter | None:
    """Return a `TableConfig` or a new static table; return None if `table` or `config` is set.

    In version 0.4, `EmbeddingBag` had the arguments of this function and the argument `mode`.
    """
    explicit = given_arguments(_of_arguments, locals())
    describing = describing_arguments(_of_arguments, locals())
    check_coefficient(faae_coefficient)
    check_padding_key(padding_key)
    if table is None:
        check_described_once(describing, config, embedding_size=embedding_size)
    if vocab_size is not None or (config is not None and config.vocab_size is not None):
        for argument in explicit:
            if argument in _HASH_ONLY:
                raise ValueError(f"{argument} is for hash tables; with vocab_size leave it out")
    if table is not None:
        shared_table(table, embedding_size, describing)
        return None
    if config is not None:
        return None
    if vocab_size is not None:
        return StaticParameter(
            vocab_size, embedding_size, param_init, name=name, seed=seed, cache=cache
        )
    return hash_config(
        embedding_size=embedding_size,
        key_dtype=key_dtype,
        param_init=param_init,
        permit_filter_value=permit_filter_value,
        evict_filter_value=evict_filter_value,
        name=name,
        seed=seed,
        admission=admission,
        eviction=eviction,
        unknown_value=unknown_value,
        serving_unknown_value=serving_unknown_value,
        cache=cache,
    )
