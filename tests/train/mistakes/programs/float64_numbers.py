# SPDX-License-Identifier: Apache-2.0
"""Numbers as float64, which is what pandas has."""

from shop import ids, label, make_model, table

make_model().train(1, [(ids, table[["price"]].to_numpy(), label)])
