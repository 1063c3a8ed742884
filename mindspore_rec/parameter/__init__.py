# SPDX-License-Identifier: Apache-2.0
"""Tables as parameters of a network, with their rules of admission and eviction.

`MapParameter` is a hash table over any int64 key, `StaticParameter` a table of a fixed vocabulary,
`TableParameter` what they share. Admission (`CountAdmission`, `SketchAdmission`,
`ProbabilityAdmission`) and `Eviction` are settings of a hash table.
"""

from mindspore_rec.parameter.bfloat16 import from_bfloat16, to_bfloat16
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
    "from_bfloat16",
    "to_bfloat16",
]
