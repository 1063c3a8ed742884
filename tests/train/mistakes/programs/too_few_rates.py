# SPDX-License-Identifier: Apache-2.0
"""A learning rate an epoch, where one a step is asked for."""

from shop import ids, label, make_model, numbers

model = make_model(learning_rate=[0.01, 0.005, 0.001])
batches = [(ids[at : at + 8], numbers[at : at + 8], label[at : at + 8]) for at in range(0, 64, 8)]
model.train(3, batches)
