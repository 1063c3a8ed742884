# SPDX-License-Identifier: Apache-2.0
"""MapParameter: a hash table with the arguments of MindSpore's experimental class."""

from __future__ import annotations

import math
import sys
from typing import Any

import mindspore as ms
from mindspore import Tensor

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.rows.policies import Admission, Eviction
from mindspore_rec.common.rows.table_scope import next_number
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.train.parameter.hash_table import HashTable
from mindspore_rec.train.parameter.initializers import row_initializer
from mindspore_rec.train.parameter.start_values import check_pair, one_dtype, shape_of_value
from mindspore_rec.train.parameter.table_config import MAX_SEED, VALUE_DTYPES, TableConfig
from mindspore_rec.train.parameter.upstream import (
    admission_by_filter,
    check_described_once,
    describing_arguments,
    eviction_by_filter,
)

__all__ = ["MapParameter"]


class _OfHashTables(type(HashTable)):  # type: ignore[misc]
    """Metaclass that makes every HashTable count as an instance of MapParameter."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is MapParameter:
            return isinstance(instance, HashTable)
        return bool(super().__instancecheck__(instance))


class MapParameter(HashTable, metaclass=_OfHashTables):
    """Parameter that maps int keys to rows of numbers and grows as keys arrive.

    The class replaces `mindspore.experimental.MapParameter`, which has no CPU kernels in MindSpore
    2.10. A MapParameter is a `HashTable` with MindSpore's arguments, and every `HashTable` counts
    as an instance of MapParameter.

    Unlike MindSpore's class, a MapParameter is not a Parameter, but an `nn.Cell` that owns a
    Parameter. Values are read and written as float32, even if the stored values have another dtype.
    The methods `put` and `erase` return the MapParameter. `HashTable` documents the calls that a
    graph can compile.

    Args:
        name: the table's name; if two open tables have the same name, only the newer table can be
            used. Default: `map_parameter_<n>`.
        requires_grad: True if training changes the table. Default: True.
        key_dtype: `int32` or `int64`. Default: `int32`.
        value_dtype: dtype of the stored values, `float32`, `bfloat16` or `float16`. To set the
            dtype of optimizer states, pass a `TableConfig` as `config`. Default: `float32`.
        value_shape: shape of one value, at most 8192 elements. Default: 1.
        key_tensor: initial keys, int32 or int64 `[n]`.
        value_tensor: values of the initial keys, of the value dtype, `[n, *value_shape]`.
        default_value: initial value of a new key: a number, 'normal', 'truncated_normal',
            'uniform', 'xavier_uniform' (fan-in and fan-out are the size of a row), 'zeros', 'ones',
            or an Initializer of one of these kinds. Default: 'normal'.
        permit_filter_value: number of occurrences in training at which a key gets a row. Before the
            key has a row, a lookup of the key returns `unknown_value`, and the key is not trained.
            Default: 1.
        evict_filter_value: a row is evicted if its key has not occurred for this many training
            steps. Default: never.
        seed: seed of the initial values. Default: 0.
        admission: policy by which a key gets a row (`TableConfig`). Default: the policy that
            `permit_filter_value` describes.
        eviction: policy by which rows are evicted (`TableConfig`). Default: the policy that
            `evict_filter_value` describes.
        unknown_value: value that lookups return for a key without a row (`TableConfig`). Default:
            `default_value` if `default_value` is a number, otherwise zeros.
        serving_unknown_value: value that lookups in evaluation return for a key without a row
            (`TableConfig`). Default: `unknown_value`.
        cache: the tiers of the rows, a `CacheConfig`. Default: all rows in host memory.
        config: a `TableConfig`, in place of the arguments above that describe the table. Of the
            arguments that describe the table, only `key_tensor`, `value_tensor` and a `value_shape`
            with `config.embedding_dim` elements may be set together with `config`.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: an argument is out of range; or an open table has the same name and both tables
            have tiers below host memory; or a tier has rows of an earlier run.
        OSError, RemoteError: a tier cannot be opened.

    Calling the cell looks keys up, with the same inputs as `get`.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import MapParameter
        >>> m = MapParameter(name="doc.map", value_shape=(3,), default_value="zeros")
        >>> m[Tensor([1, 2], ms.int32)] = Tensor([[1, 1, 1], [2, 2, 2]], ms.float32)
        >>> print(m.get(Tensor([1, 2, 3], ms.int32)))
        [[1. 1. 1.]
         [2. 2. 2.]
         [0. 0. 0.]]
        >>> _ = m.erase(Tensor([2, 3], ms.int32))
        >>> len(m), 1 in m, 2 in m
        (1, True, False)
    """

    def __init__(
        self,
        name: str | None = None,
        requires_grad: bool = True,
        *,
        key_dtype: Any = None,
        value_dtype: Any = None,
        value_shape: int | tuple[int, ...] | list[int] | None = None,
        key_tensor: Tensor | None = None,
        value_tensor: Tensor | None = None,
        default_value: Any = "normal",
        permit_filter_value: int = 1,
        evict_filter_value: int = sys.maxsize,
        seed: int = 0,
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        unknown_value: Any = None,
        serving_unknown_value: Any = None,
        cache: CacheConfig | None = None,
        config: TableConfig | None = None,
    ) -> None:
        check_described_once(describing_arguments(MapParameter.__init__, locals()), config)
        if config is None:
            if name is None:
                name = f"map_parameter_{next_number('map_parameter')}"
            if isinstance(name, TableConfig):
                raise TypeError("config must be given by its name, config=..., got it as name")
            if not isinstance(name, str) or not name:
                raise TypeError(f"name must be a non-empty str, got {name!r}")
            where = f"table '{name}': "
            check_pair(name, key_tensor, value_tensor)
            keys = one_dtype(name, "key", key_dtype, key_tensor, ms.int32, (ms.int32, ms.int64))
            values = one_dtype(name, "value", value_dtype, value_tensor, ms.float32, VALUE_DTYPES)
            value_shape = shape_of_value(name, value_shape, value_tensor)
            dim = math.prod(value_shape)
            row_initializer(default_value, fan_in=dim, fan_out=dim, argument="default_value")
            config = TableConfig(
                dim,
                name=name,
                key_dtype=keys,
                value_dtype=values,
                initializer=default_value,
                seed=check_int(where + "seed", seed, 0, MAX_SEED),
                requires_grad=requires_grad,
                admission=admission_by_filter(where, admission, permit_filter_value),
                eviction=eviction_by_filter(where, eviction, evict_filter_value),
                unknown_value=unknown_value,
                serving_unknown_value=serving_unknown_value,
                cache=cache,
            )
        super().__init__(
            config, value_shape=value_shape, key_tensor=key_tensor, value_tensor=value_tensor
        )

    def _like(self, config: TableConfig) -> MapParameter:
        return MapParameter(config=config, value_shape=self.value_shape)
