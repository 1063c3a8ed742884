# SPDX-License-Identifier: Apache-2.0
"""A column with fewer rows than the others."""

from shop import ids, label, make_model, numbers

make_model().train(1, [(ids, numbers[:-1], label)])
