# SPDX-License-Identifier: Apache-2.0
"""Models: networks that are made from a schema in one line, and their registry.

A model such as `DCNv2(schema)` is an ordinary cell. `names` lists all models, `get` finds the class
of a model by its name, and `build` makes a network from a recipe. `register` gives a name to your
own model. A registered model must derive from `Network` and make its first cells with `InputLayer`
and `FirstOrder`.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.train.models.bst import BST as BST
    from mindspore_rec.train.models.dcn import DCN as DCN
    from mindspore_rec.train.models.dcn_v2 import CrossMixture as CrossMixture, DCNv2 as DCNv2
    from mindspore_rec.train.models.deepfm import DeepFM as DeepFM
    from mindspore_rec.train.models.din import DIN as DIN
    from mindspore_rec.train.models.dlrm import DLRM as DLRM
    from mindspore_rec.train.models.features import Features as Features
    from mindspore_rec.train.models.histories import HistoryLookup as HistoryLookup
    from mindspore_rec.train.models.hstu import HSTU as HSTU
    from mindspore_rec.train.models.inputs import FirstOrder as FirstOrder, InputLayer as InputLayer
    from mindspore_rec.train.models.logistic_regression import (
        LogisticRegression as LogisticRegression,
    )
    from mindspore_rec.train.models.mmoe import MMoE as MMoE
    from mindspore_rec.train.models.network import Network as Network
    from mindspore_rec.train.models.registry import (
        build as build,
        get as get,
        names as names,
        register as register,
        settings as settings,
    )
    from mindspore_rec.train.models.sasrec import SASRec as SASRec
    from mindspore_rec.train.models.served import Served as Served, served as served
    from mindspore_rec.train.models.wide_deep import WideDeep as WideDeep
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
