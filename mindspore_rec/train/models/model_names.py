# SPDX-License-Identifier: Apache-2.0
"""Names of models, and the class of each name."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Any

__all__ = ["BUILT_IN", "classes", "module_files", "name_of", "places"]

BUILT_IN = {
    "bst": "mindspore_rec.train.models.bst:BST",
    "dcn": "mindspore_rec.train.models.dcn:DCN",
    "dcn_v2": "mindspore_rec.train.models.dcn_v2:DCNv2",
    "deepfm": "mindspore_rec.train.models.deepfm:DeepFM",
    "din": "mindspore_rec.train.models.din:DIN",
    "dlrm": "mindspore_rec.train.models.dlrm:DLRM",
    "hstu": "mindspore_rec.train.models.hstu:HSTU",
    "logistic_regression": "mindspore_rec.train.models.logistic_regression:LogisticRegression",
    "mmoe": "mindspore_rec.train.models.mmoe:MMoE",
    "sasrec": "mindspore_rec.train.models.sasrec:SASRec",
    "wide_deep": "mindspore_rec.train.models.wide_deep:WideDeep",
}
"""Modules and classes of the package's models, by name."""

_GROUP = "mindspore_rec.models"

classes: dict[str, type] = {}
"""Classes that this process has registered, by name."""

module_files: dict[str, str] = {}
"""Files of models that this process has loaded, by the names of their modules."""


def places() -> dict[str, str]:
    """Return a dict from model names to 'module:Class', including models of installed packages.

    Example:
        >>> places()["dcn"]
        'mindspore_rec.train.models.dcn:DCN'
    """
    found = {each.name: each.value for each in entry_points(group=_GROUP)}
    return {**found, **BUILT_IN}


def name_of(kind: type) -> str:
    """Return a name for which `mindspore_rec.models.get` returns a given class.

    Args:
        kind: class of a network.

    Raises:
        ValueError: the class is not registered, and is defined in a function or in a session
            without a file.

    Example:
        >>> from mindspore_rec.models import DCN
        >>> name_of(DCN)
        'dcn'
    """
    there = (kind.__module__, kind.__qualname__)  # a fused network has a class of its own
    for name, each in classes.items():
        if (each.__module__, each.__qualname__) == there:
            return name
    for name, place in places().items():
        if place == ":".join(there):
            return name
    module: Any = sys.modules.get(kind.__module__)
    file = module_files.get(kind.__module__)
    if file is None and kind.__module__ == "__main__":
        file = getattr(module, "__file__", None)
        if file is None:
            raise _unnamed(kind)
    if "<locals>" in kind.__qualname__:
        raise _unnamed(kind)
    return f"{file or kind.__module__}:{kind.__qualname__}"


def _unnamed(kind: type) -> ValueError:
    return ValueError(
        f"a checkpoint cannot name the class {kind.__qualname__}, which no module has: give it a "
        f"name by mindspore_rec.models.register('my_model', {kind.__name__}), or move it to a file"
    )
