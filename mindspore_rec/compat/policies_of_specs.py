# SPDX-License-Identifier: Apache-2.0
"""Convert thresholds of features to policies of a table; check that the thresholds are equal."""

from __future__ import annotations

from typing import Any

from mindspore_rec.common.columns.feature_spec import FeatureSpec, specs_of_table
from mindspore_rec.common.rows.policies import Admission, CountAdmission, Eviction

__all__ = ["check_policies", "policies_of_specs"]


def check_policies(
    spec: FeatureSpec, table_name: str, admission: Any, eviction: Any, remedy: str
) -> None:
    """Raise ValueError if a feature sets a threshold that differs from its table's threshold.

    Args:
        spec: the feature.
        table_name: the table's name.
        admission: the table's admission policy, or None.
        eviction: the table's Eviction, or None.
        remedy: advice for the user, at the end of the error message.

    Raises:
        ValueError: a threshold differs.

    Example:
        >>> check_policies(FeatureSpec("a", access_threshold=2), "a", CountAdmission(2), None, "")
    """
    for argument, wanted, policy, limit in (
        ("access_threshold", spec.count_threshold, admission, "threshold"),
        ("eviction_threshold", spec.idle_seconds, eviction, "max_idle_seconds"),
    ):
        value = getattr(policy, limit, None)
        value = None if value == -1 else value
        if wanted is not None and value != wanted:
            raise ValueError(
                f"feature '{spec.name}' has {argument}={wanted}, and table '{table_name}' has "
                f"{limit}={value}: {remedy}"
            )


def policies_of_specs(
    specs: Any, table_name: str, admission: Admission | None, eviction: Eviction | None
) -> tuple[Admission | None, Eviction | None]:
    """Return a table's policies. A policy that is None is made from the features' thresholds.

    Args:
        specs: features of the batch, which may include features of other tables.
        table_name: the table's name.
        admission: the table's admission policy; None to make the policy from `access_threshold`.
        eviction: the table's eviction policy; None to make the policy from `eviction_threshold`.

    Raises:
        TypeError, ValueError: `specs_of_table` rejects `specs`, or the threshold of `admission` or
            `eviction` differs from the features' threshold.

    Example:
        >>> time = FeatureSpec("time", is_timestamp=True)
        >>> specs = [FeatureSpec("a", access_threshold=2, eviction_threshold=60), time]
        >>> admission, eviction = policies_of_specs(specs, "a", None, None)
        >>> admission.threshold, eviction.max_idle_seconds
        (2, 60)
    """
    spec = specs_of_table(specs, table_name)[0]  # they agree
    if admission is None and spec.count_threshold is not None:
        admission = CountAdmission(spec.count_threshold)
    if eviction is None and spec.idle_seconds is not None:
        eviction = Eviction(max_idle_seconds=spec.idle_seconds)
    remedy = "they must be the same where a policy is given beside specs"
    check_policies(spec, table_name, admission, eviction, remedy)
    return admission, eviction
