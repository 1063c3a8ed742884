# SPDX-License-Identifier: Apache-2.0
"""EarlyStopping in a training without an evaluation."""

from shop import ids, label, make_model, numbers

from mindspore_rec import EarlyStopping

print(make_model().train(1, [(ids, numbers, label)], EarlyStopping()).steps)
