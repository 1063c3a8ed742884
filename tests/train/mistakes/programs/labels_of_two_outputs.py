# SPDX-License-Identifier: Apache-2.0
"""Labels of two tasks for a network with one output."""

import numpy as np
from shop import ids, label, make_model, numbers

make_model().train(1, [(ids, numbers, np.concatenate([label, 1 - label], 1))])
