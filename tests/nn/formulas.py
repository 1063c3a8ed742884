# SPDX-License-Identifier: Apache-2.0
"""Random inputs and comparison with a formula in NumPy, for tests of layers."""

from __future__ import annotations

import numpy as np
from mindspore import Tensor

__all__ = ["close", "rows_of"]


def rows_of(*shape: int, seed: int = 0) -> np.ndarray:
    """Return standard normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(got: Tensor, expected: np.ndarray, atol: float = 1e-5) -> None:
    """Assert that arrays are equal to `atol` of the largest expected number, at least of 1."""
    assert got.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(got.asnumpy() / scale, expected / scale, rtol=0, atol=atol)
