# SPDX-License-Identifier: Apache-2.0
"""Serving: predictions with a network that follows the checkpoints of a training.

`Predictor` predicts in a program, `python -m mindspore_rec.serving` over HTTP. `QuantisedRows` are
rows of int8 or int4 by themselves, `SharedRows` rows that processes share.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.columns.tensors import TensorSpec
    from mindspore_rec.serve.following.catalog import ChainError
    from mindspore_rec.serve.following.predictor import Predictor
    from mindspore_rec.serve.following.status import Status
    from mindspore_rec.serve.quantised_rows import QuantisedRows
    from mindspore_rec.serve.shared.rows import SharedRows
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "mindspore_rec.serve.following.catalog": ["ChainError"],
            "mindspore_rec.serve.following.predictor": ["Predictor"],
            "mindspore_rec.serve.quantised_rows": ["QuantisedRows"],
            "mindspore_rec.serve.shared.rows": ["SharedRows"],
            "mindspore_rec.serve.following.status": ["Status"],
            "mindspore_rec.common.columns.tensors": ["TensorSpec"],
        },
    )

__all__ = ["ChainError", "Predictor", "QuantisedRows", "SharedRows", "Status", "TensorSpec"]
