# SPDX-License-Identifier: Apache-2.0
"""Features: specs of columns, their conversion to int64 keys, and the lookups of tables.

`FeaturePipeline` is the one stage from raw columns to keys and numbers, of `FeatureSpec` objects
and transforms such as `Category` and `QuantileScale`; `category_keys` hashes the values of a
column. `create_table`, `sparse_lookup` and `get_insert_func` do with specs what Rec SDK's functions
of these names do. `convert` puts tables in the place of a network's ordinary embeddings, `revert`
puts them back.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
    from mindspore_rec.common.columns.feature_spec import FeatureSpec
    from mindspore_rec.common.columns.hashing import category_keys, missing_key, mix64
    from mindspore_rec.common.columns.quantiles import QuantileBucket, QuantileScale
    from mindspore_rec.common.columns.scaling import LogScale, MinMaxScale, StandardScale
    from mindspore_rec.common.columns.transforms import (
        Category,
        Feature,
        Key,
        Number,
        TimeCycle,
        TimePart,
    )
    from mindspore_rec.compat.conversion import Conversion
    from mindspore_rec.compat.convert import convert, revert
    from mindspore_rec.compat.create_table import create_table
    from mindspore_rec.compat.get_insert_func import get_insert_func
    from mindspore_rec.compat.session import init, terminate
    from mindspore_rec.compat.sparse_lookup import SparseLookup, sparse_lookup
    from mindspore_rec.compat.variables import get_dense_and_sparse_variable
    from mindspore_rec.train.data.insert_func import InsertFunc
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "mindspore_rec.compat.conversion": ["Conversion"],
            "mindspore_rec.compat.convert": ["convert", "revert"],
            "mindspore_rec.compat.create_table": ["create_table"],
            "mindspore_rec.common.columns.feature_pipeline": ["FeaturePipeline"],
            "mindspore_rec.common.columns.feature_spec": ["FeatureSpec"],
            "mindspore_rec.common.columns.hashing": ["category_keys", "missing_key", "mix64"],
            "mindspore_rec.compat.get_insert_func": ["get_insert_func"],
            "mindspore_rec.train.data.insert_func": ["InsertFunc"],
            "mindspore_rec.common.columns.quantiles": ["QuantileBucket", "QuantileScale"],
            "mindspore_rec.common.columns.scaling": ["LogScale", "MinMaxScale", "StandardScale"],
            "mindspore_rec.compat.session": ["init", "terminate"],
            "mindspore_rec.compat.sparse_lookup": ["SparseLookup", "sparse_lookup"],
            "mindspore_rec.common.columns.transforms": [
                "Category",
                "Feature",
                "Key",
                "Number",
                "TimeCycle",
                "TimePart",
            ],
            "mindspore_rec.compat.variables": ["get_dense_and_sparse_variable"],
        },
    )

__all__ = [
    "Category",
    "Conversion",
    "Feature",
    "FeaturePipeline",
    "FeatureSpec",
    "InsertFunc",
    "Key",
    "LogScale",
    "MinMaxScale",
    "Number",
    "QuantileBucket",
    "QuantileScale",
    "SparseLookup",
    "StandardScale",
    "TimeCycle",
    "TimePart",
    "category_keys",
    "convert",
    "create_table",
    "get_dense_and_sparse_variable",
    "get_insert_func",
    "init",
    "missing_key",
    "mix64",
    "revert",
    "sparse_lookup",
    "terminate",
]
