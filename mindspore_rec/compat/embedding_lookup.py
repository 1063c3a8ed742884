# SPDX-License-Identifier: Apache-2.0
"""EmbeddingLookup: lookup over a fixed vocabulary, with the arguments of MindSpore's class."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor
from mindspore.common.initializer import initializer

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.common.tiers.config import CacheConfig, check_cache
from mindspore_rec.train.nn.lookup import check_max_norm, check_padding_key, check_sparse
from mindspore_rec.train.nn.static_lookup import VocabularyLookup
from mindspore_rec.train.parameter.static_parameter import StaticParameter
from mindspore_rec.train.parameter.table_config import MAX_DIM, TableConfig
from mindspore_rec.train.parameter.upstream import (
    REQUIRED,
    check_described_once,
    describing_arguments,
)

__all__ = ["EmbeddingLookup"]


class EmbeddingLookup(VocabularyLookup):
    """Embedding lookup over a fixed vocabulary, in place of the `nn.EmbeddingLookup` of MindSpore.

    With `target='CPU'`, the native core keeps the rows in host memory. Lookups and updates run on
    the host, for the rows of a batch only, and the dense network stays on the device. With
    `target='DEVICE'`, the table is an ordinary Parameter on the device, and its gradient is dense.

    Args:
        vocab_size: number of ids, at least 1.
        embedding_size: number of floats in a row, 1 to 8192.
        param_init: initial values: a number, the name of an initializer, an Initializer, or a
            float32 Tensor `[vocab_size, embedding_size]`. Default: 'normal'.
        target: 'CPU' or 'DEVICE'. Default: 'CPU'.
        slice_mode: only 'batch_slice'.
        manual_shapes: only None.
        max_norm: upper limit of the L2 norm of returned rows. The lookup scales a row whose norm is
            above `max_norm` down to the norm `max_norm`. Default: no limit.
        sparse: must be True for a table in host memory, and False for a table on the device.
        dtype: only float32.
        out_of_range: behavior for an id outside the vocabulary: 'error' raises an error that names
            the id; 'zeros' returns zeros without an error, as MindSpore does. Only for 'CPU'.
        name: the table's name; if two open tables have the same name, only the newer table can be
            used. Only for 'CPU'. Default: `embedding_table_<n>`.
        padding_key: id for which the lookup returns zeros; this id is never trained. Only for
            'CPU'.
        seed: seed of the initial values. Only for 'CPU'. Default: 0.
        cache: the tiers of the rows, a `CacheConfig`. Only for 'CPU'. Default: all rows in host
            memory.
        vocab_cache_size: number of rows in the device cache; 0 for no device cache. With a device
            cache, the table is in host memory, for either value of `target`. This argument of
            MindSpore is equivalent to `cache=CacheConfig(device_rows=...)`. Default: 0.
        config: a `TableConfig` with `vocab_size`, in place of the arguments above that describe the
            table. Only for 'CPU'.
        output_dtype: dtype of the returned rows and of their gradient, `float32` or `bfloat16` (see
            `HashEmbeddingLookup`). Only for 'CPU'. Default: `float32`.

    Inputs:
        ids: int32 or int64 Tensor of any shape, static or dynamic.

    Outputs:
        Tensor `[*ids.shape, embedding_size]` of `output_dtype`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        RuntimeError: an id is outside the vocabulary and `out_of_range` is 'error'; the ids' dtype
            is not supported; or the network trains without an optimizer for the table.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import EmbeddingLookup
        >>> lookup = EmbeddingLookup(4, 2, "ones", name="doc.embedding_lookup")
        >>> print(lookup(Tensor([[1, 0], [3, 2]], ms.int32)).shape)
        (2, 2, 2)
    """

    def __init__(
        self,
        vocab_size: int = REQUIRED,
        embedding_size: int = REQUIRED,
        param_init: Any = "normal",
        target: str = "CPU",
        slice_mode: str = "batch_slice",
        manual_shapes: tuple[int, ...] | None = None,
        max_norm: float | None = None,
        sparse: bool = True,
        dtype: Any = ms.float32,
        *,
        out_of_range: str = "error",
        name: str | None = None,
        padding_key: int | None = None,
        seed: int = 0,
        cache: CacheConfig | None = None,
        vocab_cache_size: int = 0,
        config: TableConfig | None = None,
        output_dtype: Any = ms.float32,
    ) -> None:
        describing = describing_arguments(EmbeddingLookup.__init__, locals())
        check_described_once(
            describing, config, vocab_size=vocab_size, embedding_size=embedding_size
        )
        check_one_of("target", target, ("CPU", "DEVICE"))
        if slice_mode != "batch_slice" or manual_shapes is not None:
            raise ValueError(
                "slice_mode must be 'batch_slice' and manual_shapes None: tables are not sliced"
            )
        if dtype != ms.float32:
            raise ValueError(f"dtype must be float32, got {dtype}")
        check_max_norm(max_norm)
        cache = _with_device_rows(check_cache(cache), vocab_cache_size)
        if config is not None and target != "CPU":
            raise ValueError(f"target must be 'CPU' with config, got {target!r}")
        if target == "CPU" or vocab_cache_size:
            check_sparse(sparse)
            check_padding_key(padding_key)
            if config is None:
                check_int("embedding_size", embedding_size, 1, MAX_DIM)
            table = (
                StaticParameter(config=config)
                if config is not None
                else StaticParameter(
                    vocab_size,
                    embedding_size,
                    param_init,
                    name=name,
                    out_of_range=out_of_range,
                    seed=seed,
                    cache=cache,
                )
            )
            super().__init__(
                table, max_norm=max_norm, padding_key=padding_key, output_dtype=output_dtype
            )
            self.target = target
            return
        if sparse is not False:
            raise ValueError("sparse must be False with target='DEVICE': its gradient is dense")
        cpu_only = {"out_of_range": out_of_range != "error", "name": name is not None}
        cpu_only.update(
            padding_key=padding_key is not None, seed=seed != 0, cache=cache is not None
        )
        cpu_only.update(output_dtype=output_dtype != ms.float32)
        for argument, is_given in cpu_only.items():
            if is_given:
                raise ValueError(f"{argument} is for target='CPU' only")
        values = param_init
        if not isinstance(param_init, Tensor):
            values = initializer(param_init, [vocab_size, embedding_size], ms.float32)
        super().__init__(Parameter(values, name="embedding_table"), max_norm=max_norm)


def _with_device_rows(cache: CacheConfig | None, vocab_cache_size: int) -> CacheConfig | None:
    if check_int("vocab_cache_size", vocab_cache_size, 0, 1 << 40) == 0:
        return cache
    if cache is not None:
        raise ValueError("vocab_cache_size is the device_rows of cache: with cache leave it out")
    return CacheConfig(device_rows=vocab_cache_size)
