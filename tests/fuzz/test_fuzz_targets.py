# SPDX-License-Identifier: Apache-2.0
"""The corpus of each target, in which every input is that ever found something, and some more."""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator

import pytest

from tests.fuzz.all_targets import MODULES, targets
from tests.fuzz.harness import CORPUS, FindingError, Target, inputs_of, try_input, try_many

# Inputs in a second or two; `bash build.sh fuzz` tries as many as there is time.
RUNS = {
    "arrow": 300,
    "tsv": 300,
    "json": 300,
    "redis": 200,
    "redis_slots": 300,
    "config": 40,
    "http": 400,
    "grpc_frames": 30,
}
OTHER_RUNS = 700
PATIENCE = 20.0  # seconds for an input, of a processor that others use too


@pytest.fixture(autouse=True, scope="module")
def log_of_others() -> Iterator[None]:
    """Targets have the library log errors only: later tests of this process want warnings."""
    log = logging.getLogger("mindspore_rec")
    before = log.level
    yield
    log.setLevel(before)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, of in MODULES.items() for name in of]
)
def test_inputs(module: str, name: str) -> None:
    target = targets(module)[name]
    for what, data in inputs_of(target).items():
        try_input(target, data, f"corpus/{name}/{what}", PATIENCE)
    try_many(target, seed=7, runs=RUNS.get(name, OTHER_RUNS), hang_seconds=PATIENCE)


def test_every_corpus_is_a_targets() -> None:
    named = {name for of in MODULES.values() for name in of}
    assert {path.name for path in CORPUS.iterdir() if path.name != "native"} == named


def test_what_a_finding_is() -> None:
    def grow(_: bytes) -> None:
        # Beyond what earlier tests of this process have taken at a time.
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        bytearray(b"x") * (most + (400 << 20))

    def fail(_: bytes) -> None:
        raise KeyError("x")

    for run, words in ((grow, "MiB of memory"), (fail, "KeyError: 'x'")):
        with pytest.raises(FindingError, match=f"target t, an input: .*{words}\ninput: b'data'"):
            try_input(Target("t", run), b"data", "an input", hang_seconds=PATIENCE)
