# SPDX-License-Identifier: Apache-2.0
"""Each admission policy names its native kind, and the counts that its tables keep."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from mindspore_rec import _native
from mindspore_rec.common.rows.policies import Admission, counts_of

ARGUMENTS = {"count": (3,), "sketch": (3, 1024), "probability": (1e-9,)}


@pytest.mark.parametrize("policy", get_args(Admission), ids=lambda policy: policy.kind)
def test_a_table_keeps_the_counts_that_its_policy_names(policy: Any) -> None:
    admission = policy(*ARGUMENTS[policy.kind])
    settings = admission.native_arguments()
    assert settings["admission_kind"] == policy.kind and counts_of(policy.kind) == policy.counts
    table = _native.Table(name=f"counts.{policy.kind}", dim=2, **settings)
    table.bind_optimizer("sgd")
    table.lookup_train(np.array([5, 5, 6]))
    kept = {"keys": len(table.export_counters()["keys"]) > 0, "sketch": bool(table.export_sketch())}
    assert kept == {name: name == policy.counts for name in kept}


def test_an_unknown_kind_has_no_counts() -> None:
    assert counts_of("none") is None
