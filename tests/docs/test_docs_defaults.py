# SPDX-License-Identifier: Apache-2.0
"""The defaults that docstrings state are the defaults that arguments have."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.documented import documented_defaults
from tools.public_names import FACES, PACKAGE


def callables(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions, classes and methods of a module, with their names."""
    face = importlib.import_module(module)
    for name in face.__all__:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = getattr(face, name)
        if inspect.isfunction(value) or (inspect.isclass(value) and not _is_native(value)):
            yield name, value
        for part, method in vars(value).items() if inspect.isclass(value) else ():
            function = getattr(method, "__func__", method)
            if inspect.isfunction(function) and not part.startswith("_"):
                yield f"{name}.{part}", function


def _is_native(value: type) -> bool:
    try:
        inspect.signature(value)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("face", ["", *FACES])
def test_stated_defaults_are_those_of_the_signatures(face: str) -> None:
    module = f"{PACKAGE}.{face}".rstrip(".")
    wrong = [
        f"{name}: {each}"
        for name, value in callables(module)
        for each in documented_defaults(value)
        if not each.agrees
    ]
    assert wrong == []


def test_most_defaults_are_found() -> None:
    every = [each for _, value in callables(PACKAGE) for each in documented_defaults(value)]
    assert len(every) > 150
