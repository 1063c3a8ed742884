# SPDX-License-Identifier: Apache-2.0
"""Tables as parameters of a network, with their rules of admission and eviction.

`MapParameter` is a hash table over any int64 key, `StaticParameter` a table of a fixed vocabulary,
`TableParameter` what they share. Admission (`CountAdmission`, `SketchAdmission`,
`ProbabilityAdmission`) and `Eviction` are settings of a hash table.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.rows.bfloat16 import from_bfloat16, to_bfloat16
    from mindspore_rec.common.rows.policies import (
        Admission,
        CountAdmission,
        Eviction,
        ProbabilityAdmission,
        SketchAdmission,
    )
    from mindspore_rec.train.parameter.dynamics import EvictedKeys
    from mindspore_rec.train.parameter.explanation import Explanation
    from mindspore_rec.train.parameter.map_parameter import MapParameter
    from mindspore_rec.train.parameter.static_parameter import StaticParameter
    from mindspore_rec.train.parameter.table_config import TableConfig
    from mindspore_rec.train.parameter.table_parameter import TableParameter
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "mindspore_rec.common.rows.bfloat16": ["from_bfloat16", "to_bfloat16"],
            "mindspore_rec.train.parameter.dynamics": ["EvictedKeys"],
            "mindspore_rec.train.parameter.explanation": ["Explanation"],
            "mindspore_rec.train.parameter.map_parameter": ["MapParameter"],
            "mindspore_rec.common.rows.policies": [
                "Admission",
                "CountAdmission",
                "Eviction",
                "ProbabilityAdmission",
                "SketchAdmission",
            ],
            "mindspore_rec.train.parameter.static_parameter": ["StaticParameter"],
            "mindspore_rec.train.parameter.table_config": ["TableConfig"],
            "mindspore_rec.train.parameter.table_parameter": ["TableParameter"],
        },
    )

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
