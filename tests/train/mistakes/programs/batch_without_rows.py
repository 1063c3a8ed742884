# SPDX-License-Identifier: Apache-2.0
"""A last batch that a filter has left without rows."""

from shop import ids, label, make_model, numbers

make_model().train(1, [(ids, numbers, label), (ids[:0], numbers[:0], label[:0])])
