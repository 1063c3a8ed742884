# SPDX-License-Identifier: Apache-2.0
"""Batches without a label."""

from shop import ids, make_model

make_model().train(1, [(ids * 100,)])
