# SPDX-License-Identifier: Apache-2.0
"""Times as texts in a format of a country, which is what read_csv gives."""

from shop import make_model, table

from mindspore_rec import FeatureBatches
from mindspore_rec.stream import Category, FeaturePipeline, Number, TimePart

outputs = {
    "ids": [Category("user"), TimePart("time", "hour")],
    "numbers": [Number("price")],
    "label": [Number("clicked")],
}
dated = table.assign(time=[f"{1 + row % 28:02}.01.2026 09:00" for row in range(len(table))])
make_model().train(1, FeatureBatches([dated], FeaturePipeline(outputs)))
