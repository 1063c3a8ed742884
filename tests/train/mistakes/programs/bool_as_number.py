# SPDX-License-Identifier: Apache-2.0
"""A column of True and False as a number."""

from shop import make_model, table

from mindspore_rec import FeatureBatches
from mindspore_rec.stream import Category, FeaturePipeline, Number

outputs = {
    "ids": [Category("user"), Category("item")],
    "numbers": [Number("new")],
    "label": [Number("clicked")],
}
pipeline = FeaturePipeline(outputs)
make_model().train(1, FeatureBatches([table], pipeline))
print(table["new"][:4].tolist(), pipeline.apply(table)["numbers"][:4, 0])
