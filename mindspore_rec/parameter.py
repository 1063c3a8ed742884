# SPDX-License-Identifier: Apache-2.0
"""Tables as parameters of a network, and the tables' rules of admission and eviction.

`HashTable` is a table whose keys are any int64 or int32, and `MapParameter` is a `HashTable` with
MindSpore's arguments. `StaticParameter` is a table of a fixed vocabulary. `TableParameter` is the
base class of all tables. Admission (`CountAdmission`, `SketchAdmission`, `ProbabilityAdmission`)
and `Eviction` are settings of a hash table.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.rows.bfloat16 import (
        from_bfloat16 as from_bfloat16,
        to_bfloat16 as to_bfloat16,
    )
    from mindspore_rec.common.rows.policies import (
        Admission as Admission,
        CountAdmission as CountAdmission,
        Eviction as Eviction,
        ProbabilityAdmission as ProbabilityAdmission,
        SketchAdmission as SketchAdmission,
    )
    from mindspore_rec.compat.map_parameter import MapParameter as MapParameter
    from mindspore_rec.train.parameter.dynamics import EvictedKeys as EvictedKeys
    from mindspore_rec.train.parameter.explanation import Explanation as Explanation
    from mindspore_rec.train.parameter.hash_table import HashTable as HashTable
    from mindspore_rec.train.parameter.static_parameter import StaticParameter as StaticParameter
    from mindspore_rec.train.parameter.table_config import TableConfig as TableConfig
    from mindspore_rec.train.parameter.table_parameter import TableParameter as TableParameter
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
