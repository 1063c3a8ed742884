# SPDX-License-Identifier: Apache-2.0
"""fit without validation data."""

from shop import ids, label, make_model, numbers

print(make_model().fit(1, [(ids, numbers, label)]).steps)
