# SPDX-License-Identifier: Apache-2.0
"""Ids as floats, as pandas reads whole numbers with a missing one."""

import numpy as np
from shop import ids, label, make_model, numbers

make_model().train(1, [(ids.astype(np.float32), numbers, label)])
