# SPDX-License-Identifier: Apache-2.0
"""Number of cases that tests try, for long runs by hand: ``MINDSPORE_REC_TESTS="kills=50"``.

Tests in C++ read the variable by `tests/csrc/support/settings.h`, which has the same keys.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from tests.support.nightly import NIGHTLY

__all__ = ["SETTINGS", "VARIABLE", "Settings", "read"]

VARIABLE = "MINDSPORE_REC_TESTS"


@dataclass(frozen=True)
class Settings:
    """Keys of the variable, as docs/testing.md lists them.

    Attributes:
        lives: lives of tables of each kind in C++ (0 here: each test in C++ has its own number).
        first_life: seed of the first (0 here: each test in C++ has its own).
        kills: kills of the trainer in tests/online/test_online_effectively_once.py.
        combination_kills: kills of the trainer in tests/online/test_online_combination.py.
        worker_kills: kills of a worker in tests/online/test_online_workers.py.
        killed_workers: workers there.
        networks: random networks in tests/parallel/test_parallel_networks.py.
        first_network: number of the first.
        network_workers: numbers of workers that train them.
        network_changes: numbers of workers before and after a restart.
        network_mode: 'pynative', whose networks need no compiling, or 'graph'; '' is both.
        file_changes: changes of each file in tests/checkpoint/test_checkpoint_hostile.py.
    """

    lives: int = 0
    first_life: int = 0
    kills: int = 20 if NIGHTLY else 8
    combination_kills: int = 20 if NIGHTLY else 5
    worker_kills: int = 2
    killed_workers: int = 2
    networks: int = 6 if NIGHTLY else 1  # these six have it all
    first_network: int = 97
    network_workers: tuple[str, ...] = ("2", "3") if NIGHTLY else ("3",)
    network_changes: tuple[str, ...] = ("2-3",)
    network_mode: str = ""
    file_changes: int = 60 if NIGHTLY else 30


def read(text: str) -> Settings:
    """Read the variable.

    Args:
        text: pairs `key=value` with commas between them; a value of several parts has `/` between
            the parts.

    Raises:
        ValueError: a pair has an unknown key, or its value is no number but has to be one.

    Example:
        >>> settings = read("kills=50,network_workers=1/2/4")
        >>> settings.kills, settings.network_workers, settings.first_network
        (50, ('1', '2', '4'), 97)
    """
    defaults = {field.name: field.default for field in fields(Settings)}
    values: dict[str, Any] = {}
    for pair in filter(None, text.split(",")):
        key, equals, value = pair.partition("=")
        if key not in defaults or not equals:
            raise ValueError(
                f"{VARIABLE} has {pair!r}; it takes key=value with the keys {', '.join(defaults)}"
            )
        if isinstance(defaults[key], tuple):
            values[key] = tuple(value.split("/"))
        elif isinstance(defaults[key], str):
            values[key] = value
        elif value.isdecimal():
            values[key] = int(value)
        else:
            raise ValueError(f"{VARIABLE} has {pair!r}; {key} must be a number")
    return Settings(**values)


SETTINGS = read(os.environ.get(VARIABLE, ""))
