# SPDX-License-Identifier: Apache-2.0
"""Times as texts in a format of a country, which is what read_csv gives."""

import pandas as pd
from shop import make_model, table

from mindspore_rec import FeatureBatches
from mindspore_rec.stream import Category, FeaturePipeline, Number, TimePart

outputs = {
    "ids": [Category("user"), TimePart("time", "hour")],
    "numbers": [Number("price")],
    "label": [Number("clicked")],
}
times = pd.to_datetime(table.time, format="ISO8601")
dated = table.assign(time=times.dt.strftime("%d.%m.%Y %H:%M"))
make_model().train(1, FeatureBatches([dated], FeaturePipeline(outputs)))
