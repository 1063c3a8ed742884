# SPDX-License-Identifier: Apache-2.0
"""The section `embedding` of a configuration, and the tables that the section describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mindspore as ms
from mindspore.common.initializer import Normal

from mindspore_rec import CacheConfig, CountAdmission, Eviction, TableConfig
from mindspore_rec.common.checks import check_one_of
from models.common.checks import check_least

__all__ = ["KINDS", "TABLES", "EmbeddingConfig"]

KINDS = ("hash", "static", "converted")
TABLES = ("one", "per_field")
VALUE_DTYPES = ("float32", "bfloat16", "float16")
STATE_DTYPES = VALUE_DTYPES[:2]
ROUNDINGS = ("stochastic", "nearest")


@dataclass(frozen=True)
class EmbeddingConfig:
    """Settings of a model's embeddings.

    The keys `embedding_dim`, `std`, `admission_threshold`, `max_idle_steps`, `max_rows`,
    `unknown_value`, `buckets`, `cache`, `value_dtype`, `state_dtype` and `rounding` set fields of
    `mindspore_rec.TableConfig`. The method `table` makes a `TableConfig` from these fields. The
    remaining keys, which are not fields of `TableConfig`, set the kind, number and place of the
    tables, the form of the ids, and the number of lookups.

    Args:
        embedding_dim: number of floats in an embedding, 1 to 8192, as in `TableConfig`. Default:
            16.
        std: standard deviation of the normal initial values, at least 0; `std` sets the table's
            `initializer`. Default: 0.01.
        kind: kind of the tables, 'hash', 'static' or 'converted'. With 'hash', tables grow with the
            ids, and no two ids share a row. With 'static', tables have a fixed number of rows. With
            'converted', `mindspore_rec.convert` makes a hash table from an ordinary `nn.Embedding`
            over the ids of the training rows. Default: 'hash'.
        tables: 'one' for one table for all fields, or 'per_field' for one table per field. If all
            fields share one table, ids of different fields must not collide. Keys from
            `mindspore_rec.category_keys` do not collide, because each key is salted with the
            field's name. Default: 'one'.
        buckets: number of rows of a static table, 1 to 2**31 - 1; it sets the table's `vocab_size`.
            The row index of an id is the remainder of the id's low 31 bits divided by `buckets`.
            Only for 'static'. Default: None.
        vocabulary: True to number the ids: ids of the training rows get numbers from 1, and all
            other ids become 0. If ids are numbered, a static table has one row per number, and
            `buckets` must not be set. For kind 'converted', ids are always numbered. Default:
            False.
        host_device_mix: True to store rows in host memory, so that a step looks up and trains only
            the rows of its batch. The dense part of the model runs on the device. If
            `host_device_mix` is False, the single static table is an ordinary Parameter with a
            dense gradient, on the device. Default: True.
        multi_lookup: whether each field has its own lookup of the single hash table. Default:
            False.
        admission_threshold: number of an id's occurrences in training at which the id gets a row,
            at least 1. Sets the table's `admission`. Occurrences in all epochs are counted, unless
            `train.admission_counts` is 'first_epoch'. Only for 'hash'. Default: 1.
        max_idle_steps: a row is evicted if its key does not occur for this number of steps. Sets
            the table's `eviction`. Not for 'static'. Default: None, which means that rows are never
            evicted.
        max_rows: maximum number of rows of each table; if a table has more rows, the least recently
            used rows are evicted. Sets the table's `eviction`. Not for 'static'. Default: None,
            which means no limit.
        unknown_value: number that a lookup returns for an id without a row. Not for 'static'.
            Default: None, which means that the lookup returns 0.
        cache: arguments of `mindspore_rec.CacheConfig`, a mapping; the arguments set the tiers that
            store the rows. Only tables of kind 'hash' or 'static' on the host can have a cache.
            Default: None, which means all rows in host memory.
        value_dtype: type of the values in the tables, 'float32', 'bfloat16' or 'float16'; only for
            tables on the host. Default: 'float32'.
        state_dtype: type of the optimizer's moving averages and decaying sums, 'float32' or
            'bfloat16'; only for tables on the host. Default: 'float32'.
        rounding: how a step rounds 2-byte values and states, 'stochastic' or 'nearest'.
            Default: 'stochastic'.

    Raises:
        ValueError: a value is out of range or contradicts another value.

    Example:
        >>> EmbeddingConfig(kind="static", buckets=1000).table("ids").vocab_size
        1000
        >>> EmbeddingConfig(kind="static")
        Traceback (most recent call last):
        ...
        ValueError: 'embedding.buckets' must be given with kind 'static', unless 'vocabulary' is
        true, and only with it, got None
    """

    embedding_dim: int = 16
    std: float = 0.01
    kind: str = "hash"
    tables: str = "one"
    buckets: int | None = None
    vocabulary: bool = False
    host_device_mix: bool = True
    multi_lookup: bool = False
    admission_threshold: int = 1
    max_idle_steps: int | None = None
    max_rows: int | None = None
    unknown_value: float | None = None
    cache: CacheConfig | None = None
    value_dtype: str = "float32"
    state_dtype: str = "float32"
    rounding: str = "stochastic"

    @property
    def dim(self) -> int:
        """`embedding_dim`, in short."""
        return self.embedding_dim

    def __post_init__(self) -> None:
        check_least("'embedding.embedding_dim'", self.embedding_dim, 1, 8192)
        check_least("'embedding.std'", self.std, 0)
        check_one_of("'embedding.kind'", self.kind, KINDS)
        check_one_of("'embedding.tables'", self.tables, TABLES)
        check_one_of("'embedding.value_dtype'", self.value_dtype, VALUE_DTYPES)
        check_one_of("'embedding.state_dtype'", self.state_dtype, STATE_DTYPES)
        check_one_of("'embedding.rounding'", self.rounding, ROUNDINGS)
        check_least("'embedding.admission_threshold'", self.admission_threshold, 1)
        for name in ("max_idle_steps", "max_rows"):
            if getattr(self, name) is not None:
                check_least(f"'embedding.{name}'", getattr(self, name), 1)
        self._check_rows()
        self._check_place()
        self._check_life()

    def _check_rows(self) -> None:
        """Check the settings for a table's number of rows, such as `buckets`."""
        if self.kind == "hash" and self.vocabulary:
            raise ValueError("'embedding.vocabulary' must be false with kind 'hash': ids are keys")
        bare = self.kind == "static" and self.buckets is None and not self.vocabulary
        if bare or (self.kind == "hash" and self.buckets is not None):
            raise ValueError(
                "'embedding.buckets' must be given with kind 'static', unless 'vocabulary' is "
                f"true, and only with it, got {self.buckets}"
            )
        if self.buckets is not None:
            check_least("'embedding.buckets'", self.buckets, 1, (1 << 31) - 1)

    def _check_place(self) -> None:
        """Check the device of the tables, the number of tables, and the lookups."""
        if not self.host_device_mix and (self.kind, self.tables) != ("static", "one"):
            raise ValueError(
                "'embedding.host_device_mix' must be true unless kind is 'static' and tables "
                "'one': other tables are on the host"
            )
        if self.kind == "converted" and self.tables != "one":
            raise ValueError("'embedding.tables' must be 'one' with a converted embedding")
        if self.multi_lookup and (self.kind, self.tables) != ("hash", "one"):
            raise ValueError("'embedding.multi_lookup' is for 'embedding.kind: hash', tables 'one'")
        narrow = (self.value_dtype, self.state_dtype) != ("float32", "float32")
        if narrow and not self.host_device_mix:
            raise ValueError(
                "'embedding.value_dtype' and 'state_dtype' must be 'float32' unless tables are on "
                "the host: host_device_mix true"
            )
        if self.cache is not None and not self.host_device_mix:
            raise ValueError("'embedding.cache' is for tables on the host: host_device_mix true")
        if self.cache is not None and self.kind == "converted":
            raise ValueError(
                "'embedding.cache' must be left out with a converted embedding, whose rows are in "
                "host memory"
            )

    def _check_life(self) -> None:
        """Check the settings of admission and eviction, and `unknown_value`."""
        admits = self.admission_threshold != 1
        if self.kind == "static" and (admits or self.eviction or self.unknown_value is not None):
            raise ValueError(
                "'embedding.admission_threshold', 'max_idle_steps', 'max_rows' and 'unknown_value' "
                "are for hash tables: a static one has all its rows"
            )
        if self.kind == "converted" and admits:
            raise ValueError(
                "'embedding.admission_threshold' must be 1 with a converted embedding: all its ids "
                "have rows from the start"
            )

    @property
    def numbers_ids(self) -> bool:
        """True if ids are numbered, False if ids are keys."""
        return self.vocabulary or self.kind == "converted"

    @property
    def eviction(self) -> Eviction | None:
        """Rules of eviction; None if rows are never evicted."""
        if self.max_idle_steps is None and self.max_rows is None:
            return None
        return Eviction(max_idle_steps=self.max_idle_steps, max_rows=self.max_rows)

    def table(
        self, name: str, seed: int = 0, *, dim: int | None = None, initializer: Any = None
    ) -> TableConfig:
        """Return the config of a table.

        Args:
            name: name of the table.
            seed: seed of the table's initial values. Default: 0.
            dim: number of floats in a row. Default: the configuration's.
            initializer: initial values. Default: normal values with the configuration's standard
                deviation.
        """
        is_hash = self.kind != "static"
        return TableConfig(
            self.dim if dim is None else dim,
            name=name,
            initializer=Normal(self.std) if initializer is None else initializer,
            seed=seed,
            admission=CountAdmission(self.admission_threshold) if is_hash else None,
            eviction=self.eviction,
            unknown_value=self.unknown_value,
            vocab_size=None if is_hash else self.buckets,
            cache=self.cache,
            value_dtype=getattr(ms, self.value_dtype),
            state_dtype=getattr(ms, self.state_dtype),
            rounding=self.rounding,
        )
