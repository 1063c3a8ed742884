# SPDX-License-Identifier: Apache-2.0
"""A column of lists."""

from shop import make_model, table

from mindspore_rec import FeatureBatches
from mindspore_rec.stream import Category, FeaturePipeline, Number

outputs = {
    "ids": [Category("user"), Category("seen")],
    "numbers": [Number("price")],
    "label": [Number("clicked")],
}
make_model().train(1, FeatureBatches([table], FeaturePipeline(outputs)))
