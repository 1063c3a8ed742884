# SPDX-License-Identifier: Apache-2.0
"""Probes of packages: the packages that every command needs, and the packages of each extra."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shlex
from collections.abc import Callable, Iterator, Sequence

from mindspore_rec.command.doctor.line import (
    BROKEN,
    MISSING,
    OFF,
    OK,
    ONLY_SERVES,
    Asked,
    Line,
    has_training,
)
from mindspore_rec.common.extras import EXTRAS, pip_install

__all__ = ["FEATURES", "of_extra", "required"]

FEATURES = {
    "serving": "the HTTP server",
    "grpc": "the server's gRPC front",
    "onnx": "writing networks for servers without MindSpore",
    "kafka": "topics of Kafka",
    "redis": "rows in Redis",
    "tune": "`mindspore-rec tune`",
    "plot": "pictures in reports",
    "tensorboard": "events for TensorBoard",
    "prometheus": "metrics for Prometheus",
}
"""Features that need the packages of an extra; the probes `mpi` and `gpu` try mpi and cuda."""

_FOR_SERVING = ("serving", "grpc", "kafka", "redis", "prometheus")
# Requirements of all commands.
_REQUIRED = (
    "numpy>=1.25,<2",
    "pandas>=2.1",
    "pyarrow>=15,<22",
    "PyYAML>=6",
    "safetensors>=0.4",
    "tqdm>=4.64",
)
# Modules whose names differ from the names of their packages.
_MODULES = {
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "kafka-python": "kafka",
    "PyYAML": "yaml",
}


def required(_: Asked) -> Line:
    """Import the packages that every command needs."""
    requirements = _REQUIRED if has_training() else [e for e in _REQUIRED if "YAML" not in e]
    return _line(requirements, "every command", f"pip install {shlex.join(requirements)}")


def of_extra(extra: str) -> Callable[[Asked], Line]:
    """Return a probe that imports the packages of an extra."""

    def probe(_: Asked) -> Line:
        if not has_training() and extra not in _FOR_SERVING:
            return Line(OFF, ONLY_SERVES)
        return _line(EXTRAS[extra], FEATURES[extra], pip_install(extra))

    return probe


def _line(requirements: Sequence[str], feature: str, install: str) -> Line:
    versions: dict[str, str | None] = {}
    missing, broken = [], []
    for name, requirement in _packages(requirements):
        problem = _problem(name)
        versions[name] = None if problem is None else _version(name)
        if problem is None:
            missing.append(name)
        elif problem:
            broken.append(f"{name} cannot be imported ({problem})")
        elif not _fits(_version(name), requirement):
            broken.append(f"{name} is {_version(name)}, and {requirement} is needed")
    figures = {"packages": versions, "feature": feature}
    remedy = f"Run {install}."
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        meaning = f"{', '.join(missing)} {verb} not installed, for {feature}"
        return Line(MISSING, meaning, remedy, figures)
    if broken:
        return Line(BROKEN, f"{'; '.join(broken)}, for {feature}", remedy, figures)
    shown = ", ".join(f"{name} {version}".strip() for name, version in versions.items())
    return Line(OK, f"{shown}, for {feature}", "", figures)


def _packages(requirements: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs (name of a required package, requirement with the bounds of its version).

    An extra in brackets counts as a package without bounds.

    Example:
        >>> list(_packages(["redis[hiredis]>=5.1,<9"]))
        [('redis', 'redis>=5.1,<9'), ('hiredis', 'hiredis')]
    """
    for requirement in requirements:
        name = re.split(r"[\[<>=]", requirement)[0]
        more = re.search(r"\[(.*)\]", requirement)
        yield name, requirement if more is None else requirement.replace(more[0], "")
        for each in [] if more is None else more[1].split(","):
            yield each, each


def _problem(name: str) -> str | None:
    """Import a package; return the error's text, '' for no error, None for a missing package."""
    module = _MODULES.get(name, name)
    try:
        importlib.import_module(module)
        return ""
    except ModuleNotFoundError as error:
        return None if error.name == module else str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _fits(version: str, requirement: str) -> bool:
    """Return False if a version is outside the bounds of a requirement.

    Example:
        >>> _fits("4.6.0", "redis>=5.1,<9"), _fits("5.1", "redis>=5.1,<9")
        (False, True)
    """
    bounds = re.findall(r"(>=|<)([\d.]+)", requirement) if version else []
    return all((_numbers(version) >= _numbers(bound)) == (sign == ">=") for sign, bound in bounds)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, without zeros at the end."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(each) for each in leading[0].split(".")] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
