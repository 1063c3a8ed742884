# SPDX-License-Identifier: Apache-2.0
"""`create_table`: make a table from the arguments of Rec SDK's function."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.common.columns.feature_spec import check_name
from mindspore_rec.common.old_names import refuse_arguments
from mindspore_rec.common.rows.policies import Admission, Eviction
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.compat.cache_of_sizes import cache_of_sizes
from mindspore_rec.compat.map_parameter import MapParameter
from mindspore_rec.compat.policies_of_specs import policies_of_specs
from mindspore_rec.compat.session import adopt, default_seed
from mindspore_rec.train.parameter.initializers import row_initializer
from mindspore_rec.train.parameter.table_config import MAX_DIM, TableConfig
from mindspore_rec.train.parameter.upstream import (
    REQUIRED,
    check_described_once,
    check_hash_config,
    describing_arguments,
)

__all__ = ["create_table", "padding_keys_of"]


def create_table(
    key_dtype: Any = REQUIRED,
    dim: int = REQUIRED,
    name: str = REQUIRED,
    emb_initializer: Any = REQUIRED,
    device_vocabulary_size: int = 0,
    host_vocabulary_size: int = 0,
    ssd_vocabulary_size: int = 0,
    ssd_data_path: Any = None,
    optimizer: Any = None,
    *,
    specs: Any = None,
    default_value: Any = None,
    serving_default_value: Any = None,
    admission: Admission | None = None,
    eviction: Eviction | None = None,
    padding_keys: int | Iterable[int] | None = None,
    seed: int | None = None,
    cache: CacheConfig | None = None,
    config: TableConfig | None = None,
    **unknown: Any,
) -> MapParameter:
    """Make a table that grows as keys arrive.

    Look keys up with `SparseLookup` in a network, and with `sparse_lookup` outside a network. Other
    cells that accept a MapParameter work too, but ignore `padding_keys`.

    Args:
        key_dtype: `int32` or `int64`. An int32 table refuses int64 ids.
        dim: number of floats in a row, 1 to 8192.
        name: 1 to 100 letters, digits, '_' and '.'; if two open tables have the same name, only the
            newer table can be used.
        emb_initializer: initial value of a row: a number, 'normal', 'truncated_normal', 'uniform',
            'xavier_uniform', 'zeros', 'ones', or an Initializer of one of these kinds.
        device_vocabulary_size: rows in the device's memory, 0 to 10**9; 0 for no device tier. If
            the table has more rows than `device_vocabulary_size`, the other rows are in lower
            tiers. Default: 0.
        host_vocabulary_size: maximum number of rows in host memory: at least 1 if there is an SSD
            tier, otherwise 0. Without an SSD tier, host memory is the lowest tier and has no limit;
            `eviction=Eviction(max_rows=N)` can limit the number of rows. Default: 0.
        ssd_vocabulary_size: number of rows for which the SSD tier must have space. The SSD tier's
            limit is 1.8 times the bytes of `ssd_vocabulary_size` rows, but at least 64 MiB. The
            bytes of a row include two floats of optimizer state per float of the value. If
            `ssd_vocabulary_size` is 0, there is no SSD tier. Default: 0.
        ssd_data_path: directory for the SSD tier, or a tuple or list of one directory. Default:
            '.'.
        optimizer: must be None, because a table is passed to an optimizer, and not an optimizer to
            a table. See `get_dense_and_sparse_variable` and, for a different optimizer per table,
            `CombinedOptimizer`.
        specs: features of the batch (FeatureSpec). The thresholds of admission and eviction are
            taken from the features whose `table_name` is the table's name. The table applies
            admission and eviction in every step. If the features set a threshold, and `admission`
            or `eviction` is also set, the two thresholds must be equal. Default: none.
        default_value: value that a training lookup returns for a key that is not admitted yet; a
            number, or float32 `[dim]`. Default: `emb_initializer` if `emb_initializer` is a number,
            otherwise zeros.
        serving_default_value: the value that lookups in evaluation return for keys that are unknown
            or not admitted; a number, or float32 `[dim]`. Default: the `default_value`.
        admission: `CountAdmission`, `SketchAdmission` or `ProbabilityAdmission`. Default: every key
            is admitted at its first occurrence.
        eviction: `Eviction`. Default: no row is evicted.
        padding_keys: one key or several; `SparseLookup` and `sparse_lookup` return zeros for a
            padding key and never make a row for the key. A clone of the table has no padding keys.
            Default: none.
        seed: seed of the initial values, 0 to 2**64 - 1. Default: the seed of `init`, or 0.
        cache: the tiers as a `CacheConfig`, which has more settings than the arguments for sizes.
            Default: the tiers follow from the three arguments for sizes.
        config: a `TableConfig` with a name, in place of the arguments above that describe the
            table; only `specs` and `padding_keys` may be set together with `config`.
        **unknown: any other argument raises TypeError; for an argument of Rec SDK, the message
            names the replacement.

    Returns:
        The table. If `create_table` runs in a session of `init`, the end of the session closes the
        table.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of range or not supported; or a
            tier already has rows, from an earlier run or from an open table with the same name.
        OSError, RemoteError: a tier cannot be opened.

    The function corresponds to `mx_rec.core.embedding.create_table` in Rec SDK;
    docs/from_rec_sdk.md lists the differences.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import create_table
        >>> table = create_table(ms.int64, 8, "doc.create_table", "normal", padding_keys=0)
        >>> table.name, table.dim, table.padding_keys
        ('doc.create_table', 8, (0,))
    """
    refuse_arguments("create_table", unknown, ", ".join(_TAKEN))
    check_described_once(
        describing_arguments(create_table, locals()),
        config,
        key_dtype=key_dtype,
        dim=dim,
        name=name,
        emb_initializer=emb_initializer,
    )
    if config is not None:
        check_hash_config("table of create_table", config)
        if config.name is None:
            raise ValueError("config must have a name for create_table, got None")
        name = config.name
    check_name("name", name)
    where = f"table '{name}': "
    if optimizer is not None:
        raise ValueError(
            f"{where}optimizer must be None: an optimizer is given its tables, not a table its "
            "optimizer. Give it get_dense_and_sparse_variable(net), or use CombinedOptimizer for a "
            "different one a table"
        )
    if config is None:
        if key_dtype not in (ms.int32, ms.int64):
            raise TypeError(f"{where}key_dtype must be mindspore.int32 or int64, got {key_dtype}")
        dim = check_int(where + "dim", dim, 1, MAX_DIM)
        argument = where + "emb_initializer"
        row_initializer(emb_initializer, fan_in=dim, fan_out=dim, argument=argument)
        argument = where + "serving_default_value"
        config = TableConfig(
            dim,
            name=name,
            key_dtype=key_dtype,
            initializer=emb_initializer,
            seed=seed,
            admission=admission,
            eviction=eviction,
            unknown_value=_check_row(where + "default_value", default_value, dim),
            serving_unknown_value=_check_row(argument, serving_default_value, dim),
            cache=cache_of_sizes(
                where, dim, cache,
                device_vocabulary_size, host_vocabulary_size, ssd_vocabulary_size, ssd_data_path,
            ),
        )  # fmt: skip
    padding = _check_padding(where, padding_keys, config.key_dtype)
    if specs is not None:
        policies = policies_of_specs(specs, name, config.admission, config.eviction)
        config = dataclasses.replace(config, admission=policies[0], eviction=policies[1])
    if config.seed is None:
        config = dataclasses.replace(config, seed=default_seed())
    table = MapParameter(config=config)
    table.padding_keys = padding
    # Constants of a graph must be Tensors, because a graph treats a Python int as an int32.
    table.padding_constants = tuple(Tensor(key, config.key_dtype) for key in padding)
    adopt(table)
    return table


_TAKEN = [each for each in inspect.signature(create_table).parameters if each != "unknown"]


def padding_keys_of(table: MapParameter) -> tuple[int, ...]:
    """Return the padding keys that `create_table` set for a table.

    Example:
        >>> from mindspore_rec import MapParameter
        >>> padding_keys_of(MapParameter(name="doc.padding_keys_of"))
        ()
    """
    return getattr(table, "padding_keys", ())


def _check_padding(where: str, keys: Any, key_dtype: Any) -> tuple[int, ...]:
    if keys is None:
        return ()
    bits = 31 if key_dtype == ms.int32 else 63
    values = tuple(keys) if isinstance(keys, Iterable) else (keys,)
    argument = where + "padding_keys"
    checked = tuple(check_int(argument, key, -(1 << bits), (1 << bits) - 1) for key in values)
    if not checked or len(set(checked)) < len(checked):
        raise ValueError(f"{argument} must be different keys, at least one, got {keys!r}")
    return checked


def _check_row(argument: str, value: Any, dim: int) -> float | np.ndarray | None:
    """Return a number, or a row of numbers, in a form that `TableConfig` accepts."""
    if value is None:
        return None
    if isinstance(value, Tensor):
        value = value.asnumpy()
    if not isinstance(value, np.ndarray):
        return check_number(argument, value)
    if value.dtype != np.float32 or value.shape != (dim,):
        raise ValueError(
            f"{argument} must be a number or float32 [{dim}], got {value.dtype} {list(value.shape)}"
        )
    if not np.isfinite(value).all():
        raise ValueError(f"{argument} must be finite, got {value}")
    return value
