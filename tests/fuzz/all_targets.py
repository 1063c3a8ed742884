# SPDX-License-Identifier: Apache-2.0
"""All targets, by name."""

from __future__ import annotations

import importlib

from tests.fuzz.harness import Target

__all__ = ["MODULES", "targets"]

MODULES = {
    "checkpoint_files": ["manifest", "rows", "keys", "counters", "states"],
    "stream_messages": ["arrow", "tsv", "json", "journal", "announcement"],
    "redis_replies": ["redis", "redis_slots"],
    "logs_and_configs": ["key_log", "config"],
    "worker_messages": ["worker_arrays"],
    "requests": ["http", "grpc"],
    "grpc_frames": ["grpc_frames"],
}
"""Targets by their modules, which import much."""


def targets(module: str) -> dict[str, Target]:
    """Return the targets of a module by name."""
    found = importlib.import_module(f"tests.fuzz.targets.{module}").TARGETS
    made = {each.name: each for each in found}
    assert list(made) == MODULES[module]
    return made
