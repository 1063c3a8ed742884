# SPDX-License-Identifier: Apache-2.0
"""The label first, as in many files of clicks."""

from shop import ids, label, make_model, numbers

make_model().train(1, [(label, numbers, ids * 100)])
