# SPDX-License-Identifier: Apache-2.0
"""Probes of the machine: processor, cores, memory."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from mindspore_rec.command.doctor.line import BROKEN, OK, SLOW, Asked, Line

__all__ = ["cores", "cpu_field", "cpu_flags", "memory", "processor"]

_ROOT = Path("/")
_THREADS = "MINDSPORE_REC_NUM_THREADS"
# Flags in /proc/cpuinfo, and the flags' common names: first for x86, then for Arm, oldest first.
_SETS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 BF16",
    "amx_bf16": "AMX BF16",
    "asimd": "NEON",
    "sve": "SVE",
    "bf16": "BF16",
}
_LITTLE_MEMORY = 2 << 30  # bytes; MindSpore alone takes about 1 GiB


def processor(_: Asked) -> Line:
    """Return the model of the processor and its instruction sets."""
    flags = cpu_flags()
    architecture = platform.machine()
    model = cpu_field("model name") or architecture
    sets = [name for flag, name in _SETS.items() if flag in flags]
    meaning = f"{model} ({architecture}) with {', '.join(sets) or 'no vector sets'}"
    figures = {"model": model, "architecture": architecture, "instruction_sets": sets}
    if architecture != "x86_64":
        if not flags and cpu_field("flags"):
            meaning = f"{architecture} under an emulator, since /proc/cpuinfo tells of {model}"
        return Line(OK, f"{meaning}; the core uses NEON and no wider set", "", figures)
    if "sse4_2" not in flags:
        remedy = "Use a processor of 2009 or later, since the core needs x86-64-v2."
        return Line(BROKEN, meaning, remedy, figures)
    if "avx2" not in flags:
        remedy = "Use a processor or a virtual machine with AVX2, which makes row updates faster."
        return Line(SLOW, meaning, remedy, figures)
    return Line(OK, meaning, "", figures)


def cores(_: Asked) -> Line:
    """Return the number of cores, and the number of cores that the container may use."""
    usable = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    threads = os.environ.get(_THREADS, "")
    figures = {"cores": os.cpu_count(), "usable": usable, "quota": quota}
    meaning = f"{usable} of {os.cpu_count()} cores may be used"
    if threads:
        meaning += f"; {_THREADS}={threads} sets the number of threads"
    elif quota is not None and quota < usable:
        return Line(
            SLOW,
            f"{meaning}, but the container gets the time of {quota:g}, so {usable} threads wait "
            "for each other",
            f"Set {_THREADS}={max(1, math.ceil(quota))} in the environment.",
            figures,
        )
    return Line(OK, meaning, "", figures)


def memory(_: Asked) -> Line:
    """Return the memory, the limit of the container, and the number of rows that fit."""
    total, free = (_of_meminfo(name) for name in ("MemTotal", "MemAvailable"))
    limit = memory_limit()
    usable = free if limit is None else min(free, limit)
    figures = {"total": total, "available": free, "container_limit": limit}
    bound = "no limit of a container" if limit is None else f"a container of {_gib(limit)}"
    meaning = f"{_gib(free)} of {_gib(total)} free, {bound}"
    row = _bytes_of_row()
    if row:
        meaning += f"; {usable / row / 1e6:,.0f} million rows of dim 16 with LazyAdam fit"
    if usable < _LITTLE_MEMORY:
        remedy = "Free memory, raise the container's limit, or keep rows on SSD or in Redis."
        return Line(SLOW, meaning, remedy, figures)
    return Line(OK, meaning, "", figures)


def cpu_field(name: str) -> str:
    """Return a field of the first processor in /proc/cpuinfo; '' if the field is missing."""
    for line in _text(_ROOT / "proc/cpuinfo").splitlines():
        if line.partition(":")[0].strip() == name:
            return line.partition(":")[2].strip()
    return ""


def cpu_flags() -> list[str]:
    """Return the features of the processor, in alphabetical order."""
    # The field is "flags" on x86 and "Features" on Arm. Under an emulator, the file may describe
    # the host.
    return sorted(cpu_field("flags" if platform.machine() == "x86_64" else "Features").split())


def cpu_quota(root: Path = _ROOT) -> float | None:
    """Return the control group's limit of processor time, in cores; None if there is no limit.

    Args:
        root: folder with `proc` and `sys`. Default: /.
    """
    quotas = []
    for folder in _control_groups("cpu", root):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if not quota:
            quota = _text(folder / "cpu.cfs_quota_us")
            period = _text(folder / "cpu.cfs_period_us")
        if quota.strip().isdecimal() and period.strip().isdecimal():
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(root: Path = _ROOT) -> int | None:
    """Return the control group's limit of memory in bytes; None if there is no limit.

    Args:
        root: folder with `proc` and `sys`. Default: /.
    """
    limits = []
    for folder in _control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _text(folder / name).strip()
            if limit.isdecimal() and int(limit) < 1 << 60:  # version 1 has 2^63 for no limit
                limits.append(int(limit))
    return min(limits, default=None)


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control group and of the groups above it."""
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and controller not in controllers.split(","):
            continue
        top = mounted if number == "0" else mounted / controller
        folder = top / path.lstrip("/")
        while folder.is_relative_to(top):
            yield folder
            folder = folder.parent


def _of_meminfo(name: str) -> int:
    """Return a field of /proc/meminfo, in bytes; 0 if the field is missing."""
    for line in _text(_ROOT / "proc/meminfo").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


def _bytes_of_row() -> int:
    """Return a row's size in memory in bytes; 0 if the core or `mindspore_rec.plan` is missing."""
    try:
        from mindspore_rec.plan.sizes import row_bytes

        return row_bytes(16, "LazyAdam")
    except ImportError:
        return 0


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB"


def _text(path: Path) -> str:
    """Return the text of a small file; '' if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
