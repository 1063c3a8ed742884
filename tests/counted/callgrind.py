# SPDX-License-Identifier: Apache-2.0
"""Programs under valgrind: the instructions that they count, and the processor that they see.

So that counts are the same on processors with other instruction sets, kernels are those without
AVX (MINDSPORE_REC_SIMD=base), and libraries choose their functions as for such a processor.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.counted.profile import read_profile

__all__ = ["count", "setting"]

# Valgrind shows one processor, whatever is below, but for some features that it passes on.
_TUNABLES = {
    "glibc.cpu.hwcaps": "-AVX2,-AVX,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-RTM,-BMI1,-BMI2,-LZCNT",
    "glibc.cpu.x86_data_cache_size": "32768",
    "glibc.cpu.x86_shared_cache_size": "1048576",
    "glibc.cpu.x86_non_temporal_threshold": "3145728",
}
_ENVIRONMENT = {
    "GLIBC_TUNABLES": ":".join(f"{name}={value}" for name, value in _TUNABLES.items()),
    "MINDSPORE_REC_HASH_SEED": "counted",
    "MINDSPORE_REC_NUM_THREADS": "1",
    "MINDSPORE_REC_SIMD": "base",
}


def setting(program: Path) -> dict[str, str]:
    """Return what counts of a program depend on: compiler, C library and processor.

    The processor is that which programs see under valgrind, for they choose code by it: an AMD EPYC
    of 2021 is shown as the Intel Core of 2013 that valgrind plays.
    """
    said = subprocess.check_output(
        ["valgrind", "--tool=none", "--quiet", program, "--setting"], text=True
    )
    compiler, libc, processor = said.splitlines()
    return {"processor": processor, "libc": libc, "compiler": compiler}


def count(
    command: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> tuple[dict[str, Counter[str]], str]:
    """Return the instructions by function, by the name under which they were written; and what the
    command printed.

    Args:
        command: starts counting itself. What it has not written itself has the name "".
        environment: to add to one that is the same everywhere. Default: nothing.

    Raises:
        RuntimeError: the command failed, or nothing was counted.
    """
    shown = " ".join(map(str, command))
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "profile"
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet"]
        valgrind += ["--compress-strings=no", "--compress-pos=no", f"--callgrind-out-file={out}"]
        always = {"PATH": os.environ["PATH"], "TMPDIR": directory, **_ENVIRONMENT}
        done = subprocess.run(
            [*valgrind, *map(str, command)],
            env={**always, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{shown} failed:\n{done.stdout}{done.stderr}")
        found = {}
        for path in sorted(Path(directory).glob("profile*")):
            with open(path, encoding="utf-8") as file:
                name, functions = read_profile(file)
            if functions:
                found[name] = functions
    if not found:
        raise RuntimeError(f"{shown}: nothing was counted")
    return found, done.stdout
