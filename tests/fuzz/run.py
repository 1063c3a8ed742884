# SPDX-License-Identifier: Apache-2.0
"""Fuzz readers written in Python for a time: `python -m tests.fuzz.run --seconds 60`.

With atheris (`pip install atheris`) inputs are chosen by what code they reach, without it by
chance. A target that finds something ends; its input is printed and kept in `build/fuzz/<target>`.
Each module of targets is a process of its own, so that one may crash.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.all_targets import MODULES, targets
from tests.fuzz.harness import CORPUS, FindingError, Target, inputs_of, try_input, try_many
from tests.fuzz.mutate import mutated

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "build" / "fuzz"


def _by_chance(target: Target, seconds: float, seed: int) -> None:
    corpus = inputs_of(target)
    target.run(next(iter(corpus.values())))  # which makes what the target needs, in no input's time
    for what, data in corpus.items():
        try_input(target, data, f"corpus/{target.name}/{what}")
    count = try_many(target, seed, sys.maxsize, seconds)
    print(f"{target.name}: {count} inputs by chance, seed {seed}", flush=True)


def _by_coverage(target: Target, seconds: float, seed: int) -> None:
    import atheris

    corpus = list(inputs_of(target).values())
    target.run(corpus[0])  # which makes what the target needs, in no input's time
    place = FOUND / target.name
    grown = place / "corpus"  # the first folder is where it puts inputs that reach more
    grown.mkdir(parents=True, exist_ok=True)

    def run(data: bytes) -> None:
        try_input(target, data, "atheris", hang_seconds=5)  # its own instructions take time too

    def change(data: bytes, most: int, number: int) -> bytes:
        if number % 3 == 0:
            return bytes(atheris.Mutate(data, most))
        return mutated(data, random.Random(number), corpus, target.words)[:most]

    options = [
        f"-max_total_time={max(1, int(seconds))}", f"-seed={seed % (1 << 32)}", "-timeout=60",
        "-rss_limit_mb=4096", f"-artifact_prefix={place}/", "-max_len=65536",
    ]  # fmt: skip
    folders = [str(grown), str(CORPUS / target.name)]
    atheris.Setup([sys.argv[0], *options, *folders], run, custom_mutator=change)
    atheris.Fuzz()


def _one(module: str, name: str, seconds: float, seed: int) -> None:
    if importlib.util.find_spec("atheris") is None:
        _by_chance(targets(module)[name], seconds, seed)
        return
    import atheris

    with atheris.instrument_imports(include=["mindspore_rec", "models"]):
        target = targets(module)[name]
    _by_coverage(target, seconds, seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of all targets together")
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 31))
    parser.add_argument("--only", help="name of one target; default: all")
    parser.add_argument("--here", help=argparse.SUPPRESS)  # module of the one target
    options = parser.parse_args()
    names = [(module, name) for module, of in MODULES.items() for name in of]
    wanted = [each for each in names if options.only in (None, each[1])]
    if not wanted:
        parser.error(f"--only must be one of {', '.join(name for _, name in names)}")
    if options.here:
        try:
            _one(options.here, options.only, options.seconds, options.seed)
        except FindingError as error:
            print(error)
            return 1
        return 0
    failed = []
    for module, name in wanted:
        share = options.seconds / len(wanted)
        given = ["--seconds", str(share), "--seed", str(options.seed), "--only", name]
        command = [sys.executable, "-m", "tests.fuzz.run", *given, "--here", module]
        if subprocess.run(command, cwd=ROOT, timeout=share + 300).returncode != 0:
            failed.append(name)
    print(f"found something: {', '.join(failed) or 'nothing'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
