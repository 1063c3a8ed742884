# SPDX-License-Identifier: Apache-2.0
"""A label of shape [n], which is what a column of pandas is."""

from shop import ids, label, make_model, numbers

make_model().train(1, [(ids, numbers, label[:, 0])])
