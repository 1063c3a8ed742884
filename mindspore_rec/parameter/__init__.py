# SPDX-License-Identifier: Apache-2.0
"""Tables as parameters of a network."""

from mindspore_rec.parameter.dynamics import EvictedKeys
from mindspore_rec.parameter.explanation import Explanation
from mindspore_rec.parameter.map_parameter import MapParameter
from mindspore_rec.parameter.policies import (
    Admission,
    CountAdmission,
    Eviction,
    ProbabilityAdmission,
    SketchAdmission,
)
from mindspore_rec.parameter.static_parameter import StaticParameter
from mindspore_rec.parameter.table_config import TableConfig
from mindspore_rec.parameter.table_parameter import TableParameter

__all__ = [
    "Admission",
    "CountAdmission",
    "EvictedKeys",
    "Eviction",
    "Explanation",
    "MapParameter",
    "ProbabilityAdmission",
    "SketchAdmission",
    "StaticParameter",
    "TableConfig",
    "TableParameter",
]
