# SPDX-License-Identifier: Apache-2.0
"""Times as texts, which is what read_csv gives."""

from shop import make_model, table

from mindspore_rec import FeatureBatches
from mindspore_rec.stream import Category, FeaturePipeline, Number, TimePart

outputs = {
    "ids": [Category("user"), TimePart("time", "hour")],
    "numbers": [Number("price")],
    "label": [Number("clicked")],
}
make_model().train(1, FeatureBatches([table], FeaturePipeline(outputs)))
