# SPDX-License-Identifier: Apache-2.0
"""Labels 0 and 1 as whole numbers."""

from shop import ids, make_model, numbers, table

make_model().train(1, [(ids, numbers, table[["clicked"]].to_numpy())])
