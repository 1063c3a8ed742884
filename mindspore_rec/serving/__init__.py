# SPDX-License-Identifier: Apache-2.0
"""Serving: predictions with a network that follows the checkpoints of a training run.

`Predictor` predicts inside a program; `python -m mindspore_rec.serving` predicts over HTTP.
`QuantizedRows` is a table of int8 or int4 rows without a network, and `SharedRows` is a table of
rows that several processes share.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.columns.tensors import TensorSpec as TensorSpec
    from mindspore_rec.serve.following.catalog import ChainError as ChainError
    from mindspore_rec.serve.following.predictor import Predictor as Predictor
    from mindspore_rec.serve.following.status import Status as Status
    from mindspore_rec.serve.quantized_rows import QuantizedRows as QuantizedRows
    from mindspore_rec.serve.shared.rows import SharedRows as SharedRows
else:
    OLD_NAMES = {"QuantisedRows": "QuantizedRows"}
    __getattr__, __dir__, __all__ = lazily(__name__, renamed=OLD_NAMES)
