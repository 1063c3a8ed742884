# SPDX-License-Identifier: Apache-2.0
"""How a model holds what it learns of ids: hash or static tables, one or one for each field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal

from mindspore_rec import (
    CacheConfig,
    EmbeddingBag,
    EmbeddingLookup,
    GroupedEmbedding,
    HashEmbeddingLookup,
    MapParameter,
    StaticParameter,
)
from mindspore_rec.checks import check_int, check_number, check_one_of
from mindspore_rec.parameter import CountAdmission, Eviction, TableParameter

__all__ = ["EmbeddingConfig", "FieldEmbedding", "FieldSum", "embedding_parameters"]

KINDS = ("hash", "static")
TABLES = ("one", "per_field")


@dataclass(frozen=True)
class EmbeddingConfig:
    """The embeddings of a model.

    Args:
        dim: floats of an embedding, 1 to 8192. Default: 16.
        std: standard deviation of the first values, at least 0. Default: 0.01.
        kind: 'hash': tables grow with the ids, none collide. 'static': `buckets` rows each, an id's
            row is the remainder of its low 31 bits. Default: 'hash'.
        tables: 'one' for all fields, whose ids must not collide: keys that are salted by the
            field's name, as `mindspore_rec.feature.hashing.category_keys` makes them; or
            'per_field'. Default: 'one'.
        buckets: rows of a static table, 1 to 2**31 - 1; only for 'static'.
        host_device_mix: True: rows live on the host and are looked up and trained there, only those
            a batch touches, while the dense part runs on the device. False: one table of all fields
            is an ordinary Parameter on the device with a dense gradient; only for 'static', for
            hash tables are on the host always. Default: True.
        admission_threshold: of hash tables: occurrences in training after which an id gets a row,
            those of all epochs unless `train.admission_counts` says otherwise. Default: 1.
        max_idle_steps: of hash tables: steps without an occurrence after which a row goes.
            Default: None, never.
        max_rows: of hash tables: rows of each, at most; the ones seen longest ago go.
            Default: None, no limit.
        cache: the tiers the rows live in, as for `mindspore_rec.CacheConfig`; of tables on the
            host. Default: None, all rows in host memory.

    Raises:
        ValueError: a value is out of range or does not go with another.

    Example:
        >>> EmbeddingConfig(kind="static", buckets=1000).dim
        16
        >>> EmbeddingConfig(kind="static")
        Traceback (most recent call last):
        ...
        ValueError: 'embedding.buckets' must be given with kind 'static', and only with it, got None
    """

    dim: int = 16
    std: float = 0.01
    kind: str = "hash"
    tables: str = "one"
    buckets: int | None = None
    host_device_mix: bool = True
    admission_threshold: int = 1
    max_idle_steps: int | None = None
    max_rows: int | None = None
    cache: CacheConfig | None = None

    def __post_init__(self) -> None:
        check_int("'embedding.dim'", self.dim, 1, 8192)
        if check_number("'embedding.std'", self.std) < 0:
            raise ValueError(f"'embedding.std' must be at least 0, got {self.std}")
        check_one_of("'embedding.kind'", self.kind, KINDS)
        check_one_of("'embedding.tables'", self.tables, TABLES)
        if (self.kind == "static") != (self.buckets is not None):
            raise ValueError(
                "'embedding.buckets' must be given with kind 'static', and only with it, "
                f"got {self.buckets}"
            )
        if self.buckets is not None:
            check_int("'embedding.buckets'", self.buckets, 1, (1 << 31) - 1)
        if not self.host_device_mix and (self.kind, self.tables) != ("static", "one"):
            raise ValueError(
                "'embedding.host_device_mix' must be True unless kind is 'static' and tables "
                "'one': other tables are on the host"
            )
        if self.kind == "static" and (self.admission_threshold != 1 or self.evicts):
            raise ValueError(
                "'embedding.admission_threshold', 'max_idle_steps' and 'max_rows' are for kind "
                "'hash': a static table has all its rows"
            )
        if self.cache is not None and not self.host_device_mix:
            raise ValueError("'embedding.cache' is for tables on the host: host_device_mix true")
        # Out of range is an error here, before data are read.
        CountAdmission(self.admission_threshold)
        self.eviction()

    @property
    def evicts(self) -> bool:
        """Whether rows ever leave."""
        return self.max_idle_steps is not None or self.max_rows is not None

    def eviction(self) -> Eviction | None:
        """Who leaves a hash table."""
        if not self.evicts:
            return None
        return Eviction(max_idle_steps=self.max_idle_steps, max_rows=self.max_rows)

    def describe(self, init: Any, name: str, seed: int) -> dict[str, Any]:
        """What makes a hash table, for the cells that take it so."""
        return {
            "key_dtype": ms.int64,
            "param_init": init,
            "name": name,
            "seed": seed,
            "admission": CountAdmission(self.admission_threshold),
            "eviction": self.eviction(),
            "cache": self.cache,
        }


class FieldEmbedding(nn.Cell):
    """The embeddings of all fields of a row.

    Args:
        fields: number of fields F, at least 1.
        config: how they are held.
        name: the table's name, or what the tables' names begin with.
        seed: of the first values. Default: 0.
        dim: floats of an embedding, instead of the configuration's. Default: None.
        init: first values, instead of normal ones with the configuration's deviation.
            Default: None.

    Inputs:
        ids: int64 Tensor `[B, F]`.

    Outputs:
        float32 Tensor `[B, F, dim]`.

    Attributes:
        dim: floats of an embedding.
        table: what looks ids up.

    Example:
        >>> embedding = FieldEmbedding(3, EmbeddingConfig(dim=4), "doc.fields")
        >>> embedding(Tensor([[1, 2, 3]], ms.int64)).shape
        (1, 3, 4)
    """

    def __init__(
        self,
        fields: int,
        config: EmbeddingConfig,
        name: str,
        seed: int = 0,
        *,
        dim: int | None = None,
        init: Any = None,
    ) -> None:
        super().__init__()
        self.dim = config.dim if dim is None else dim
        init = Normal(config.std) if init is None else init
        self.rows = _RowOfId(config.buckets)
        self.table = self._make(check_int("fields", fields, 1, 1 << 16), config, init, name, seed)

    def construct(self, ids: Tensor) -> Tensor:
        """Rows of ids."""
        return self.table(self.rows(ids))

    def _make(self, fields: int, config: EmbeddingConfig, init: Any, name: str, seed: int) -> Any:
        if config.tables == "per_field":
            return GroupedEmbedding(
                [_table(config, self.dim, init, f"{name}.{f}", seed) for f in range(fields)]
            )
        if config.buckets is None:
            return HashEmbeddingLookup(self.dim, **config.describe(init, name, seed))
        if config.host_device_mix:
            return EmbeddingLookup(
                config.buckets, self.dim, init, name=name, seed=seed, cache=config.cache
            )
        return EmbeddingLookup(config.buckets, self.dim, init, target="DEVICE", sparse=False)


class FieldSum(nn.Cell):
    """The first-order term: one weight for each id, summed over the fields of a row.

    Args: as for `FieldEmbedding`; the weights start at 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.

    Outputs:
        float32 Tensor `[B, 1]`.
    """

    def __init__(self, fields: int, config: EmbeddingConfig, name: str, seed: int = 0) -> None:
        super().__init__()
        self.rows = _RowOfId(config.buckets)
        # The bag sums on the way out of the table; it is there for one table on the host.
        self.sums = config.tables == "one" and config.host_device_mix
        if not self.sums:
            self.table = FieldEmbedding(fields, config, name, seed, dim=1, init="zeros").table
        elif config.buckets is None:
            self.table = EmbeddingBag(1, "sum", **config.describe("zeros", name, seed))
        else:
            self.table = EmbeddingBag(
                1,
                "sum",
                vocab_size=config.buckets,
                param_init="zeros",
                name=name,
                seed=seed,
                cache=config.cache,
            )

    def construct(self, ids: Tensor) -> Tensor:
        """The sum of the ids' weights."""
        weights = self.table(self.rows(ids))
        return weights if self.sums else weights.sum(1)


def embedding_parameters(net: nn.Cell) -> list[Parameter]:
    """What a network learns of ids: the parameters of its `FieldEmbedding` and `FieldSum` cells.

    Example:
        >>> embedding = FieldEmbedding(2, EmbeddingConfig(), "doc.embedding_parameters")
        >>> net = nn.SequentialCell(embedding, nn.Dense(16, 1))
        >>> len(embedding_parameters(net)), len(net.trainable_params())
        (1, 3)
    """
    cells = [
        each for _, each in net.cells_and_names() if isinstance(each, FieldEmbedding | FieldSum)
    ]
    found = {id(p): p for cell in cells for p in cell.trainable_params()}
    return list(found.values())


def _table(config: EmbeddingConfig, dim: int, init: Any, name: str, seed: int) -> TableParameter:
    if config.buckets is not None:
        return StaticParameter(config.buckets, dim, init, name=name, seed=seed, cache=config.cache)
    described = config.describe(init, name, seed)
    described["default_value"] = described.pop("param_init")
    return MapParameter(value_shape=dim, **described)


class _RowOfId(nn.Cell):
    """Ids as they are for hash tables, row numbers for static ones."""

    def __init__(self, buckets: int | None) -> None:
        super().__init__()
        self.buckets = buckets
        # MindSpore computes remainders of int64 in floating point: exact for short ones only.
        self.low_bits = Tensor((1 << 31) - 1, ms.int64)

    def construct(self, ids: Tensor) -> Tensor:
        if self.buckets is None:
            return ids
        return ops.bitwise_and(ids, self.low_bits) % self.buckets
