# SPDX-License-Identifier: Apache-2.0
"""A DataFrame as the data."""

from shop import make_model, table

make_model().train(1, table)
