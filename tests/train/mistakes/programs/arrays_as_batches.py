# SPDX-License-Identifier: Apache-2.0
"""Three arrays instead of a list of batches."""

from shop import ids, label, make_model, numbers

make_model().train(1, (ids, numbers, label))
