# SPDX-License-Identifier: Apache-2.0
"""Names of metrics, for a network that was not made from a schema."""

from shop import make_model

make_model(metrics=["auc"])
