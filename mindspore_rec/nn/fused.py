# SPDX-License-Identifier: Apache-2.0
"""Layers that run as one forward and one backward operator, on the CPU or a GPU (csrc/dense)."""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.train.nn.fused.device import describe as describe
    from mindspore_rec.train.nn.fused.inputs import (
        MOST_UNITS as MOST_UNITS,
        check_inputs as check_inputs,
        check_widths as check_widths,
        join as join,
        widened as widened,
    )
    from mindspore_rec.train.nn.fused.layer import (
        COMPUTE_DTYPES as COMPUTE_DTYPES,
        FusedLayer as FusedLayer,
        cells_of_operators as cells_of_operators,
        devices_of_parameters as devices_of_parameters,
        may_fuse as may_fuse,
    )
    from mindspore_rec.train.nn.fused.library import has_onednn as has_onednn
    from mindspore_rec.train.nn.fused.loss import LogisticLoss as LogisticLoss
    from mindspore_rec.train.nn.fused.program import (
        Columns as Columns,
        Part as Part,
        Program as Program,
    )
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
