# SPDX-License-Identifier: Apache-2.0
"""The columns of Criteo's click data, and the encoding of its counts."""

from __future__ import annotations

import numpy as np

__all__ = [
    "CATEGORY_FIELDS",
    "COUNT_FIELDS",
    "FIELDS",
    "LABEL",
    "PARQUET_FIELDS",
    "bin_counts",
    "packed_fields",
    "scale_counts",
]

LABEL = "label"
COUNT_FIELDS = tuple(f"I{i}" for i in range(1, 14))
CATEGORY_FIELDS = tuple(f"C{i}" for i in range(1, 27))
FIELDS = (LABEL, *COUNT_FIELDS, *CATEGORY_FIELDS)
"""The 40 tab-separated columns, in order; the file has no header."""

PARQUET_FIELDS = (
    LABEL,
    *(f"integer_feature_{i}" for i in range(1, 14)),
    *(f"categorical_feature_{i}" for i in range(1, 27)),
)
"""Names of the same columns in the Parquet files of the terabyte set."""


def packed_fields(counts_as_categories: bool = False) -> dict[str, tuple[str, ...]]:
    """Return the names of the values in each array (ids, dense, label) of a packed data set.

    Args:
        counts_as_categories: True if ``ids`` also contains keys of the binned counts (default
            False).
    """
    return {
        "ids": CATEGORY_FIELDS + (COUNT_FIELDS if counts_as_categories else ()),
        "dense": COUNT_FIELDS,
        "label": ("click",),
    }


def scale_counts(counts: np.ndarray) -> np.ndarray:
    """Return ``log(1 + max(x, 0))`` of counts, and 0 if a count is missing.

    Negative counts (I2 has a few, down to -3) count as 0, as in DLRM's preprocessing
    (https://github.com/facebookresearch/dlrm, ``data_utils.py``).

    Args:
        counts: float64 array of any shape; NaN is a missing count. Not changed.

    Returns:
        float32 array of the same shape, all values finite and at least 0.

    Example:
        >>> scale_counts(np.array([0.0, 1.0, -2.0, np.nan])).round(4)
        array([0.    , 0.6931, 0.    , 0.    ], dtype=float32)
    """
    # if one argument is NaN, fmax returns the other, so a missing count becomes 0
    return np.log1p(np.fmax(counts, 0.0)).astype(np.float32)


def bin_counts(counts: np.ndarray) -> np.ndarray:
    """Turn counts into categories: x becomes ``floor(log(x)**2)`` if x > 2, else ``int(x)``.

    The rule is from the challenge's winners
    (https://www.csie.ntu.edu.tw/~r01922136/kaggle-2014-criteo.pdf): fine steps for small counts,
    coarse steps for large counts.

    Args:
        counts: float64 array of any shape; NaN is a missing count. Not changed.

    Returns:
        float64 array with the shape of ``counts``: whole numbers, and NaN for a missing count.

    Example:
        >>> bin_counts(np.array([-1.0, 2.0, 3.0, 1000.0, np.nan]))
        array([-1.,  2.,  1., 47., nan])
    """
    with np.errstate(invalid="ignore"):
        large = np.floor(np.log(np.maximum(counts, 1.0)) ** 2)
        small = np.trunc(np.maximum(counts, -(2.0**53)))  # so that a bin always fits int64
        return np.where(counts > 2, large, small)
