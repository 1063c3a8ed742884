# SPDX-License-Identifier: Apache-2.0
"""A missing label."""

import numpy as np
from shop import ids, label, make_model, numbers

label[3] = np.nan
make_model().train(1, [(ids, numbers, label)])
