# SPDX-License-Identifier: Apache-2.0
"""Each optimizer of the face is in all lists of optimizers and rules, and no list has another."""

from __future__ import annotations

import re
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from mindspore_rec import _native, optim
from mindspore_rec.plan import OPTIMIZERS
from mindspore_rec.train.optim import base, dense_step, device_rules
from tests.support.processes import ROOT

ROWS = ROOT / "mindspore_rec" / "csrc" / "rows"
REQUIRED: dict[str, dict[str, Any]] = {"Momentum": {"momentum": 0.9}}
FACE = [
    name
    for name in vars(optim)["__all__"]
    if name != "CombinedOptimizer"
    and isinstance(getattr(optim, name), type)
    and issubclass(getattr(optim, name), nn.Optimizer)
]


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The name of the native rule of each optimizer of the face."""
    found: dict[str, str] = {}
    bind = base.SparseOptimizer._bind

    def recorded(self: Any, owners: list[Any], rule: str, constants: Any) -> None:
        found[type(self).__name__] = rule
        bind(self, owners, rule, constants)

    monkeypatch.setattr(base.SparseOptimizer, "_bind", recorded)
    for name in FACE:
        weight = Parameter(Tensor(np.ones(2, np.float32), ms.float32), name="w")
        getattr(optim, name)([weight], learning_rate=0.1, **REQUIRED.get(name, {}))
    return found


def test_each_optimizer_has_a_rule_and_each_rule_an_optimizer(rules: dict[str, str]) -> None:
    assert list(rules) == FACE
    assert set(rules.values()) == set(dense_step._RULES) == set(device_rules.RULES)


def test_plans_know_each_optimizer_and_its_state(rules: dict[str, str]) -> None:
    assert {name.partition("-")[0] for name in OPTIMIZERS} == set(FACE)
    for name, width in OPTIMIZERS.items():
        optimizer, _, variant = name.partition("-")
        for dim in (1, 5):
            expected = _native.state_width(rules[optimizer], dim, variant == "centered")
            assert width(dim) == expected, name


def test_numbers_of_rules_are_those_of_the_core() -> None:
    enum = re.search(r"enum class RuleKind[^{]*{([^}]*)}", (ROWS / "rule.h").read_text("utf-8"))
    assert enum is not None
    kinds = re.findall(r"k\w+", enum[1])
    assert kinds[0] == "kNone" and "kNone = 0," in enum[1] and enum[1].count("=") == 1
    parsed = dict(
        re.findall(
            r'if \(name == "(\w+)"\) return RuleKind::(\w+);', (ROWS / "rule.cc").read_text("utf-8")
        )
    )
    assert {name: kinds.index(kind) for name, kind in parsed.items()} == dense_step._RULES
    assert len(parsed) == len(kinds) - 1
