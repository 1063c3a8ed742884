# SPDX-License-Identifier: Apache-2.0
"""A prediction for one row without the axis of rows."""

from shop import ids, label, make_model, numbers

model = make_model()
model.train(1, [(ids, numbers, label)])
print(model.predict(ids[0], numbers[0]))
