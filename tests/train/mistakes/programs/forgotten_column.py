# SPDX-License-Identifier: Apache-2.0
"""A column left out."""

from shop import ids, label, make_model

make_model().train(1, [(ids, label)])
