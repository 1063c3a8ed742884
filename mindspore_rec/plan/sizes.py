# SPDX-License-Identifier: Apache-2.0
"""Bytes of a row in memory."""

from __future__ import annotations

from collections.abc import Callable

from mindspore_rec import _native
from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.common.old_arguments import Renamed, takes_old

__all__ = [
    "COUNTER_BYTES",
    "DIGEST_BYTES",
    "INDEX_BYTES",
    "OPTIMIZERS",
    "SSD_INDEX_BYTES",
    "row_bytes",
]

_COUNTER = _native.row_sizes(0)  # a key that is counted and not admitted: a row without floats
COUNTER_BYTES = _COUNTER.in_host()
INDEX_BYTES = _COUNTER.index  # a row's part of the index; it does not move with the row
# Bytes of a row's digest in host memory if RecCheckpoint keeps digests. If rows are evicted by age,
# a row has two digests.
DIGEST_BYTES = _COUNTER.digest
SSD_INDEX_BYTES = _COUNTER.ssd_index  # of memory per row, at most

_MAX_DIM = 8192


def _state_of(rule: str, centered: bool = False) -> Callable[[int], int]:
    return lambda dim: _native.state_width(rule, dim, centered)


# Number of floats in a row's optimizer state, as a function of the row's dim.
OPTIMIZERS: dict[str, Callable[[int], int]] = {
    "Adagrad": _state_of("adagrad"),
    "Adam": _state_of("adam"),
    "AdamW": _state_of("adamw"),
    "FTRL": _state_of("ftrl"),
    "LazyAdam": _state_of("adam"),
    "Momentum": _state_of("momentum"),
    "RMSProp": _state_of("rmsprop"),
    "RMSProp-centered": _state_of("rmsprop", centered=True),
    "RowWiseAdagrad": _state_of("row_wise_adagrad"),
    "SGD": _state_of("sgd"),
}


# Optimizers whose states are sums; sums stay float32 even if `state_dtype` is bfloat16.
_SUMS = ("Adagrad", "FTRL", "RowWiseAdagrad")
VALUE_DTYPES = ("float32", "bfloat16", "float16")
STATE_DTYPES = ("float32", "bfloat16")


@takes_old(Renamed("dim", "embedding_dim"))
def row_bytes(
    embedding_dim: int, optimizer: str, value_dtype: str = "float32", state_dtype: str = "float32"
) -> int:
    """Return the bytes of a row: metadata, index entry, value and optimizer state.

    The result does not include the memory that the slabs and the index reserve for growth. The
    result does not include `DIGEST_BYTES`, because only some tables store digests.

    Args:
        embedding_dim: number of floats in the value, 1 to 8192.
        optimizer: name of an optimizer, one of `OPTIMIZERS`.
        value_dtype: 'float32', 'bfloat16' or 'float16'. Default: 'float32'.
        state_dtype: dtype of states that are moving averages or decaying sums, 'float32' or
            'bfloat16'. States that are sums of all gradients so far (in Adagrad, FTRL and
            RowWiseAdagrad) are always float32. Default: 'float32'.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> row_bytes(16, "LazyAdam"), row_bytes(16, "SGD")
        (220, 92)
        >>> row_bytes(16, "LazyAdam", "bfloat16", "bfloat16")
        124
    """
    check_int("embedding_dim", embedding_dim, 1, _MAX_DIM)
    check_one_of("optimizer", optimizer, tuple(OPTIMIZERS))
    check_one_of("value_dtype", value_dtype, VALUE_DTYPES)
    check_one_of("state_dtype", state_dtype, STATE_DTYPES)
    state = "float32" if optimizer in _SUMS else state_dtype
    return _native.row_sizes(
        embedding_dim, OPTIMIZERS[optimizer](embedding_dim), value_dtype, state
    ).in_host()
