# SPDX-License-Identifier: Apache-2.0
"""No batch at all: the data have fewer rows than a batch."""

from shop import ids, label, make_model, numbers

size = 256
starts = range(0, len(ids) - size + 1, size)
batches = [(ids[at : at + size], numbers[at : at + size], label[at : at + size]) for at in starts]
make_model().train(1, batches)
