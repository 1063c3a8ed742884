# SPDX-License-Identifier: Apache-2.0
"""Text ids as objects, as pandas gives them."""

from shop import label, make_model, numbers, table

ids = table[["user", "item"]].to_numpy()
make_model().train(1, [(ids, numbers, label)])
