# SPDX-License-Identifier: Apache-2.0
"""Text ids as NumPy's strings."""

import numpy as np
from shop import label, make_model, numbers, table

ids = np.array(table[["user", "item"]].to_numpy().tolist())
make_model().train(1, [(ids, numbers, label)])
