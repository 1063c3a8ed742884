# SPDX-License-Identifier: Apache-2.0
"""Format a tier plan: a line per tier, or a line per choice if all choices have two tiers."""

from __future__ import annotations

from mindspore_rec.plan.report import bytes_text
from mindspore_rec.plan.tiers import TierOutcome, TierPlan

__all__ = ["tier_text"]


def tier_text(plan: TierPlan) -> str:
    """Return a plan as text: the log's lookups, then the served and moved rows of each choice."""
    lines = [
        f"{plan.samples:,} samples, {plan.steps:,} steps, {plan.lookups:,} lookups, "
        f"{plan.keys:,} distinct keys; {plan.row_bytes} bytes a row in host memory, "
        f"{plan.moved_row_bytes} on its way",
        f"a step asks for {plan.unique_keys:,.0f} distinct keys, at most "
        f"{plan.most_unique_keys:,}"
        + (f"; the first {plan.warm_up:,} steps do not count" if plan.warm_up else ""),
        "",
    ]
    if all(len(outcome.tiers) == 2 for outcome in plan.outcomes):
        cells = _by_choice(plan)
    else:
        cells = _by_tier(plan)
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines += ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    if not all(outcome.fits for outcome in plan.outcomes):
        lines += [
            "",
            f"* too small: the {plan.most_unique_keys:,} distinct keys of one batch must fit into "
            "host memory, and so must the keys of the batches read ahead",
        ]
    return "\n".join(lines)


def _by_choice(plan: TierPlan) -> list[tuple[str, ...]]:
    below = plan.outcomes[0].tiers[1].name
    head = ("order", "host rows", "of keys", "host memory", "host", below, "new")
    cells: list[tuple[str, ...]] = [(*head, "up/step", "down/step", "bytes/step")]
    for outcome in plan.outcomes:
        host, lower = outcome.tiers
        assert host.capacity is not None
        cells.append(
            (
                outcome.order,
                _rows(outcome),
                _percent(host.capacity / plan.keys),
                bytes_text(host.memory_bytes),
                _percent(host.served),
                _percent(lower.served),
                _percent(outcome.new),
                f"{lower.read_rows:,.0f}",
                f"{lower.written_rows:,.0f}",
                bytes_text(lower.moved_bytes),
            )
        )
    return cells


def _by_tier(plan: TierPlan) -> list[tuple[str, ...]]:
    cells: list[tuple[str, ...]] = [
        ("order", "tier", "rows", "memory", "served", "up/step", "down/step", "bytes/step")
    ]
    for outcome in plan.outcomes:
        for i, tier in enumerate(outcome.tiers):
            limit = _rows(outcome) if i == 0 else f"{tier.capacity or tier.rows:,}"
            moved = (f"{tier.read_rows:,.0f}", f"{tier.written_rows:,.0f}")
            cells.append(
                (
                    outcome.order,
                    tier.name,
                    limit,
                    bytes_text(tier.memory_bytes),
                    _percent(tier.served),
                    *(moved if i else ("-", "-")),
                    bytes_text(tier.moved_bytes) if i else "-",
                )
            )
        cells.append((outcome.order, "new", "", "", _percent(outcome.new), "", "", ""))
    return cells


def _rows(outcome: TierOutcome) -> str:
    return f"{'' if outcome.fits else '* '}{outcome.tiers[0].capacity:,}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
