# SPDX-License-Identifier: Apache-2.0
"""CheckedIds: checks the number of ids in each row."""

from __future__ import annotations

from mindspore import Tensor, nn

from mindspore_rec.common.checks import check_int

__all__ = ["CheckedIds"]


class CheckedIds(nn.Cell):
    """Check the shape of ids, and return the ids unchanged.

    A network that slices columns of the ids needs this check, because a slice beyond the last
    column raises no error.

    Args:
        width: number of ids in a row, at least 1.

    Inputs:
        ids: Tensor `[B, width]`.

    Outputs:
        `ids`.

    Raises:
        ValueError: the shape of `ids` is not `[B, width]`.

    Example:
        >>> CheckedIds(2)(Tensor([[3, 4]])).shape
        (1, 2)
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = check_int("width", width, 1, 1 << 31)

    def construct(self, ids: Tensor) -> Tensor:
        """Return the ids."""
        if ids.shape[1:] != (self.width,):
            raise ValueError(
                f"ids must be [B, {self.width}], as in the arrays of the schema, got {ids.shape}"
            )
        return ids
