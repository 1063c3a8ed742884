# SPDX-License-Identifier: Apache-2.0
"""Conversion of the arguments of MindSpore, MindRec and Rec SDK to a TableConfig.

Each class or function that makes a table accepts either a `config` or the arguments of the
corresponding class or function in MindSpore, MindRec or Rec SDK.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mindspore import Tensor

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.rows.policies import (
    MAX_COUNT,
    NEVER,
    Admission,
    CountAdmission,
    Eviction,
    check_admission,
    check_eviction,
)
from mindspore_rec.train.parameter.table_config import TableConfig

__all__ = [
    "REQUIRED",
    "admission_by_filter",
    "check_described_once",
    "check_hash_config",
    "check_static_config",
    "describing_arguments",
    "eviction_by_filter",
    "given_arguments",
]


class _Required:
    def __repr__(self) -> str:
        return "<required without config>"


# Default of an argument that is required in the upstream library; the argument may be omitted only
# if `config=` is passed.
REQUIRED: Any = _Required()

# Names of all arguments that describe a table, in all upstream signatures.
_DESCRIBING = frozenset(
    (
        *(
            "dim",
            "embedding_size",
            "embedding_dim",
            "vocab_size",
            "key_dtype",
            "value_dtype",
            "dtype",
            "name",
        ),
        *("param_init", "emb_initializer", "default_value", "serving_default_value", "seed"),
        *("permit_filter_value", "evict_filter_value", "admission", "eviction", "requires_grad"),
        *("unknown_value", "serving_unknown_value", "out_of_range", "cache", "vocab_cache_size"),
        *("device_vocabulary_size", "host_vocabulary_size", "ssd_vocabulary_size"),
        *("ssd_data_path", "config"),
    )
)


def given_arguments(function: Callable[..., Any], values: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments whose values in a call differ from the defaults.

    Args:
        function: the function that was called.
        values: maps argument names to values, such as `locals()` at the beginning of the function.

    Example:
        >>> def maker(dim, seed=0): ...
        >>> given_arguments(maker, {"dim": 8, "seed": 0})
        ['dim']
    """
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.name in values and not _same(values[p.name], p.default)]


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    return not isinstance(value, (Tensor, np.ndarray)) and bool(value == default)


def describing_arguments(function: Callable[..., Any], values: Mapping[str, Any]) -> list[str]:
    """Return the names of given arguments that describe a table; `config` is included.

    Args:
        function: the class or function that was called.
        values: maps argument names to values, such as `locals()` at the beginning of the function.

    Example:
        >>> def maker(dim, seed=0, max_norm=None): ...
        >>> describing_arguments(maker, {"dim": 8, "seed": 0, "max_norm": 1.0})
        ['dim']
    """
    return [name for name in given_arguments(function, values) if name in _DESCRIBING]


def check_described_once(describing: list[str], config: Any, **required: Any) -> None:
    """Check that either `config` or other arguments describe a table, but not both.

    Args:
        describing: names of the passed arguments that describe the table, from
            `describing_arguments`.
        config: a TableConfig, or None.
        **required: values of the arguments that have no default in the upstream library.

    Raises:
        TypeError: `config` is neither None nor a TableConfig; or `config` is None and a required
            argument is missing; or a required argument is a TableConfig.
        ValueError: `config` and another argument both describe the table.

    Example:
        >>> check_described_once(["seed", "config"], TableConfig(8), dim=REQUIRED)
        Traceback (most recent call last):
        ...
        ValueError: seed describes the table, as config does: with config= leave it out
    """
    for argument, value in required.items():
        if isinstance(value, TableConfig):
            raise TypeError(f"config must be given by its name, config=..., got it as {argument}")
    if config is None:
        for argument, value in required.items():
            if value is REQUIRED:
                raise TypeError(f"{argument} must be given, or config=TableConfig(...)")
        return
    if not isinstance(config, TableConfig):
        raise TypeError(f"config must be a TableConfig, got {config!r}")
    for argument in describing:
        if argument != "config":
            raise ValueError(
                f"{argument} describes the table, as config does: with config= leave it out"
            )


def check_hash_config(maker: str, config: TableConfig) -> None:
    """Raise ValueError if a config does not describe a hash table.

    Args:
        maker: name of the class or function that accepts the config, for the error message.
        config: the config to check.

    Example:
        >>> check_hash_config("MapParameter", TableConfig(8))
    """
    if config.vocab_size is not None:
        raise ValueError(
            f"config must have no vocab_size for a {maker}, whose ids may be any, "
            f"got {config.vocab_size}"
        )


def check_static_config(maker: str, config: TableConfig) -> int:
    """Return the `vocab_size` of a config; raise ValueError if the config has no `vocab_size`.

    Args:
        maker: name of the class or function that accepts the config, for the error message.
        config: the config to check.

    Raises:
        ValueError: the config has no `vocab_size`.

    Example:
        >>> check_static_config("EmbeddingLookup", TableConfig(8, vocab_size=100))
        100
    """
    if config.vocab_size is None:
        raise ValueError(f"config must have a vocab_size for a {maker}")
    return config.vocab_size


def admission_by_filter(where: str, admission: Any, permit_filter_value: Any) -> Admission:
    """Return `admission`, or the policy that MindSpore's `permit_filter_value` describes.

    Args:
        where: text that precedes an argument's name in error messages.
        admission: an admission policy, or None.
        permit_filter_value: number of occurrences at which a key is admitted, 1 to 2**30 - 1.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or `admission` and
            `permit_filter_value` are both set.

    Example:
        >>> admission_by_filter("", None, 3)
        CountAdmission(threshold=3, max_candidates=None)
    """
    permit = check_int(where + "permit_filter_value", permit_filter_value, 1, MAX_COUNT)
    checked = check_admission(admission)
    if checked is None:
        return CountAdmission(permit)
    if permit != 1:
        raise ValueError(f"{where}permit_filter_value must be left out with admission=")
    return checked


def eviction_by_filter(where: str, eviction: Any, evict_filter_value: Any) -> Eviction | None:
    """Return `eviction`, or the eviction rule that MindSpore's `evict_filter_value` describes.

    Args:
        where: text that precedes an argument's name in error messages.
        eviction: an Eviction, or None.
        evict_filter_value: if a key does not occur for this number of steps, at least 1, the key's
            row is evicted. `sys.maxsize`, the upstream default, and any number above half of
            `sys.maxsize` mean that rows are never evicted.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or `eviction` and
            `evict_filter_value` are both set.

    Example:
        >>> eviction_by_filter("", None, 1000).max_idle_steps
        1000
    """
    evict = check_int(where + "evict_filter_value", evict_filter_value, 1, sys.maxsize)
    never = evict > sys.maxsize // 2
    checked = check_eviction(eviction)
    if checked is not None and not never:
        raise ValueError(f"{where}evict_filter_value must be left out with eviction=")
    if checked is None and not never:
        return Eviction(max_idle_steps=min(evict, NEVER))
    return checked
