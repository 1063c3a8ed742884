# SPDX-License-Identifier: Apache-2.0
"""An evaluation of a model without metrics."""

from shop import ids, label, make_model, numbers

model = make_model(metrics={})
model.train(1, [(ids, numbers, label)])
print(model.eval([(ids, numbers, label)]))
