# SPDX-License-Identifier: Apache-2.0
"""Three epochs over a generator, which is used up after one."""

from shop import ids, label, make_model, numbers


def batches(size=16):
    for at in range(0, len(ids), size):
        yield ids[at : at + size], numbers[at : at + size], label[at : at + size]


make_model().train(3, batches())
