# SPDX-License-Identifier: Apache-2.0
"""Features: specs of columns, conversion of columns to int64 keys, and lookups in tables.

`FeaturePipeline` converts raw columns to keys and numbers; `FeatureSpec` objects and transforms
such as `Category` and `QuantileScale` describe the conversion. `category_keys` hashes the values of
a column. With specs, `create_table`, `sparse_lookup` and `get_insert_func` work like
`create_table`, `sparse_lookup` and `get_asc_insert_func` in Rec SDK. `convert` replaces a network's
ordinary embeddings by tables, and `revert` puts the embeddings back.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.columns.cross import Cross as Cross
    from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline as FeaturePipeline
    from mindspore_rec.common.columns.feature_spec import FeatureSpec as FeatureSpec
    from mindspore_rec.common.columns.hashing import (
        category_keys as category_keys,
        missing_key as missing_key,
        mix64 as mix64,
    )
    from mindspore_rec.common.columns.histories import ragged as ragged
    from mindspore_rec.common.columns.labels import (
        Label as Label,
        NumbersOfTexts as NumbersOfTexts,
        Times as Times,
    )
    from mindspore_rec.common.columns.lists import (
        PADDING_KEY as PADDING_KEY,
        Categories as Categories,
        Words as Words,
    )
    from mindspore_rec.common.columns.quantiles import (
        MixedScale as MixedScale,
        QuantileBucket as QuantileBucket,
        QuantileScale as QuantileScale,
    )
    from mindspore_rec.common.columns.scaling import (
        LogScale as LogScale,
        MinMaxScale as MinMaxScale,
        StandardScale as StandardScale,
    )
    from mindspore_rec.common.columns.schema.column import (
        CategoryColumn as CategoryColumn,
        Column as Column,
        CrossColumn as CrossColumn,
        GroupColumn as GroupColumn,
        HistoryColumn as HistoryColumn,
        IgnoredColumn as IgnoredColumn,
        IntegerColumn as IntegerColumn,
        KeptHistoryColumn as KeptHistoryColumn,
        LabelColumn as LabelColumn,
        ListColumn as ListColumn,
        NumberColumn as NumberColumn,
        TextColumn as TextColumn,
        TimeColumn as TimeColumn,
        WeightColumn as WeightColumn,
    )
    from mindspore_rec.common.columns.schema.schema import Schema as Schema
    from mindspore_rec.common.columns.target_statistics import (
        TargetStatistics as TargetStatistics,
    )
    from mindspore_rec.common.columns.transforms import (
        Category as Category,
        Feature as Feature,
        Key as Key,
        Number as Number,
        TimeCycle as TimeCycle,
        TimePart as TimePart,
    )
    from mindspore_rec.compat.conversion import Conversion as Conversion
    from mindspore_rec.compat.convert import convert as convert, revert as revert
    from mindspore_rec.compat.create_table import create_table as create_table
    from mindspore_rec.compat.get_insert_func import get_insert_func as get_insert_func
    from mindspore_rec.compat.session import init as init, terminate as terminate
    from mindspore_rec.compat.sparse_lookup import (
        SparseLookup as SparseLookup,
        sparse_lookup as sparse_lookup,
    )
    from mindspore_rec.compat.variables import (
        get_dense_and_sparse_variable as get_dense_and_sparse_variable,
    )
    from mindspore_rec.train.data.insert_func import InsertFunc as InsertFunc
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
