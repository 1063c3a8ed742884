# SPDX-License-Identifier: Apache-2.0
"""`get_insert_func`: make a FeaturePipeline with the same outputs as Rec SDK's function."""

from __future__ import annotations

from typing import Any

from mindspore_rec.common.old_names import refuse_arguments
from mindspore_rec.train.data.insert_func import InsertFunc

__all__ = ["get_insert_func"]


def get_insert_func(specs: Any = None, **unknown: Any) -> InsertFunc:
    """Return a function that converts whole batches of features to keys before a training step.

    If the function is passed to a Dataset's `apply`, the threads of the Dataset run the function
    while the network trains. The function can also be called directly with a batch, a dict or a
    tuple of arrays. The first outputs are the keys of each feature, under the feature's name and in
    the order of the specs. If a feature is the timestamp, the output after the keys is the event
    time of the batch, int64 `[1]`, under the name of the feature. The last outputs are the columns
    that no feature reads. If the label is the last column of a batch, the label is also the last
    output. `FeatureBatches` converts batches in the same way and also sets the tables' event time.
    The function is a `FeaturePipeline(specs, keep_rest=True)` whose outputs include the event time.

    Args:
        specs: FeatureSpec objects for the features of a batch; or a FeaturePipeline. With a
            FeaturePipeline, the first outputs are the outputs of the pipeline, and not the keys of
            the features.
        **unknown: any other argument raises TypeError; for an argument of Rec SDK, the message
            names the replacement.

    Returns:
        The function. The function raises ValueError or TypeError if a column is missing, values are
        neither integers nor strings, features differ in length, or times are not seconds since
        1970. The error message names the feature. If a Dataset calls the function, the Dataset
        raises a RuntimeError with the function's message.

    Raises:
        TypeError: `specs` is not a FeatureSpec, an iterable of FeatureSpec objects or a
            FeaturePipeline; or another argument is set.
        ValueError: there is no feature, or the features contradict each other (`FeaturePipeline`).

    The function corresponds to `mx_rec.core.asc.helper.get_asc_insert_func` in Rec SDK.

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
