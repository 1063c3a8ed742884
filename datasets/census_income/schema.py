# SPDX-License-Identifier: Apache-2.0
"""The columns of Census-Income (KDD) and their roles.

Source: UCI Machine Learning Repository, https://archive.ics.uci.edu/dataset/117/census+income+kdd.
"""

from __future__ import annotations

__all__ = [
    "AGE",
    "COLUMNS",
    "FILES",
    "INCOME",
    "MARITAL",
    "MONEY",
    "NUMERIC",
    "TASKS",
    "WEIGHT",
    "category_columns",
]

COLUMNS = (
    "age", "class_worker", "det_ind_code", "det_occ_code", "education", "wage_per_hour",
    "hs_college", "marital_stat", "major_ind_code", "major_occ_code", "race", "hisp_origin",
    "sex", "union_member", "unemp_reason", "full_or_part_emp", "capital_gains",
    "capital_losses", "stock_dividends", "tax_filer_stat", "region_prev_res",
    "state_prev_res", "det_hh_fam_stat", "det_hh_summ", "instance_weight", "mig_chg_msa",
    "mig_chg_reg", "mig_move_reg", "mig_same", "mig_prev_sunbelt", "num_emp", "fam_under_18",
    "country_father", "country_mother", "country_self", "citizenship", "own_or_self",
    "vet_question", "vet_benefits", "weeks_worked", "year", "income_50k",
)  # fmt: skip
"""The 42 columns of a file, in order; it has no header."""

FILES = {"train": "census-income.data.gz", "test": "census-income.test.gz"}
"""Names of the two files, as UCI ships them."""

AGE = "age"
INCOME = "income_50k"
MARITAL = "marital_stat"
WEIGHT = "instance_weight"
TASKS = ("income", "never_married")

MONEY = ("wage_per_hour", "capital_gains", "capital_losses", "stock_dividends")
"""Amounts: mostly 0, long-tailed, and telling by their exact value."""

NUMERIC = (AGE, *MONEY, "num_emp", "weeks_worked")
"""Quantities. Numbers in the other columns (industry, occupation, year, ...) are codes."""


def category_columns(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """Return the categorical columns that may be features if ``tasks`` are the labels.

    The income column and the survey's weight are never features. ``never_married`` is derived from
    marital status, so marital status is a feature only if ``never_married`` is not in ``tasks``.

    Example:
        >>> len(category_columns(("income",))), len(category_columns(("income", "never_married")))
        (33, 32)
    """
    out = {*NUMERIC, WEIGHT, INCOME}
    if "never_married" in tasks:
        out.add(MARITAL)
    return tuple(name for name in COLUMNS if name not in out)
