# SPDX-License-Identifier: Apache-2.0
"""An evaluation of clicks only."""

from shop import ids, label, make_model, numbers

model = make_model()
model.train(1, [(ids, numbers, label)])
clicked = label[:, 0] == 1
print(model.eval([(ids[clicked], numbers[clicked], label[clicked])]))
