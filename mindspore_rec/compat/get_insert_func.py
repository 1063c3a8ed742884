# SPDX-License-Identifier: Apache-2.0
"""`get_insert_func`: a FeaturePipeline under the name and with the output that Rec SDK has."""

from __future__ import annotations

from typing import Any

from mindspore_rec.common.old_names import refuse_arguments
from mindspore_rec.train.data.insert_func import InsertFunc

__all__ = ["get_insert_func"]


def get_insert_func(specs: Any = None, **unknown: Any) -> InsertFunc:
    """Return a function that turns features into keys ahead of the step, whole batches at a time.

    Give it to a Dataset's `apply`, where it runs in the pipeline's threads while the network
    trains, or call it with batches: dicts or tuples of arrays. Out come, in this order, the keys of
    each feature (under its name, in the order of the specs), the batch's event time, int64 `[1]`
    (if a feature is the timestamp, under its name), and the columns that no feature reads. So the
    label stays last. `FeatureBatches` does this and sets the tables' event time too. It is
    `FeaturePipeline(specs, keep_rest=True)` with the event time among the columns.

    Args:
        specs: features of a batch, FeatureSpec objects; or a FeaturePipeline, whose arrays come out
            in place of the features' keys.
        **unknown: refused with a TypeError, which names the replacement of arguments of Rec SDK.

    Returns:
        The function. If a batch does not fit, it raises ValueError or TypeError, which name the
        feature: a column that is not there; values neither integers nor strings; features of
        different lengths; times that are no seconds since 1970. A Dataset then raises RuntimeError
        with that message.

    Raises:
        TypeError, ValueError: as `check_specs`.

    After `mx_rec.core.asc.helper.get_asc_insert_func` of Rec SDK.

    Example:
        >>> import numpy as np
        >>> from mindspore_rec import FeatureSpec
        >>> time = FeatureSpec("time", index_key=0, is_timestamp=True)
        >>> insert = get_insert_func([FeatureSpec("user", index_key=1), time])
        >>> label = np.zeros((2, 1), np.float32)
        >>> insert((np.array([60, 61]), np.array([[7], [9]]), label))[:2]
        (array([[7],
               [9]]), array([61]))
    """
    refuse_arguments("get_insert_func", unknown, "specs")
    return InsertFunc(specs)
