# SPDX-License-Identifier: Apache-2.0
"""The registry of models: finds a model's class by name, and builds networks from recipes."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.model_names import classes, module_files, places
from mindspore_rec.train.models.network import Network

__all__ = ["build", "get", "names", "register", "settings"]

_Kind = TypeVar("_Kind", bound=type[Network])


def names() -> list[str]:
    """Return the names of all models, sorted.

    The list contains the models of this library, models of installed packages, and registered
    models. A package adds a model by an entry point of the group `mindspore_rec.models`.

    Example:
        >>> from mindspore_rec import models
        >>> [name for name in models.names() if name.startswith("d")]
        ['dcn', 'dcn_v2', 'deepfm', 'din', 'dlrm']
    """
    return sorted({*places(), *classes})


def get(model: str) -> type[Any]:
    """Return the class of a model.

    Args:
        model: a name that `names` returns, a class in a file, such as 'my_file.py:MyNet', or a
            class in a module, such as 'my_package.nets:MyNet'. If the class is in a file, the file
            is run as a module.

    Raises:
        TypeError: `model` is not a text, or the class does not derive from `Network`.
        ValueError: no model has the name `model`.

    Example:
        >>> from mindspore_rec import models
        >>> models.get("dcn_v2").__name__
        'DCNv2'
        >>> models.get("dcn2")
        Traceback (most recent call last):
        ...
        ValueError: no model has the name 'dcn2'; did you mean 'dcn'? Names are bst, dcn, ...
    """
    if not isinstance(model, str):
        raise TypeError(f"model must be the name of a model, got {model!r}")
    if model in classes:
        return _checked(model, classes[model])
    known = places()
    place = known.get(model, model)
    if ":" not in place:
        raise ValueError(f"no model has the name {model!r}{_instead(model, names(), 'Names')}")
    home, _, name = place.rpartition(":")
    module = _of_file(Path(home)) if home.endswith(".py") else _of_module(home, model)
    kind: Any = module
    for part in name.split("."):
        kind = getattr(kind, part, None)
    if kind is None:
        of_file = [each for each, value in vars(module).items() if _is_network(value)]
        raise ValueError(f"{home} has no class {name!r}{_instead(name, of_file, 'Networks')}")
    return _checked(model, kind)


def register(name: str, kind: _Kind | None = None) -> Any:
    """Register a model's class under a name in this process, by a call or as a class decorator.

    Args:
        name: name of the model, without a colon.
        kind: class derived from `Network`. Default: None, which means that a class decorator is
            returned.

    Returns:
        The class; if `kind` is None, a class decorator.

    Raises:
        TypeError: the class does not derive from `Network`.
        ValueError: the name is not a text, is empty or has a colon, or belongs to a model of this
            package or of an installed package.

    A class that this process has registered under the same name is replaced.

    Example:
        >>> from mindspore_rec import models
        >>> @models.register("linear_of_the_page")
        ... class Linear(models.LogisticRegression):
        ...     "A model of one's own."
        >>> models.get("linear_of_the_page").__name__
        'Linear'
    """
    if not isinstance(name, str) or not name or ":" in name:
        raise ValueError(f"name must be a text without a colon, got {name!r}")
    if name in places():
        raise ValueError(f"name {name!r} belongs to the model {places()[name]}: choose another")

    def add(kind: _Kind) -> _Kind:
        classes[name] = _checked(name, kind)
        return kind

    return add if kind is None else add(kind)


def settings(model: str) -> dict[str, Any]:
    """Return the settings of a model with their default values.

    Args:
        model: name of the model; see `get`.

    Example:
        >>> from mindspore_rec import models
        >>> models.settings("dcn")["hidden"]
        (256, 128)
    """
    parameters = list(inspect.signature(get(model)).parameters.values())[1:]
    return {each.name: each.default for each in parameters if each.name not in ("name", "seed")}


def build(
    recipe: Mapping[str, Any], schema: Schema, *, name: str | None = None, seed: int | None = None
) -> Network:
    """Return the network of a recipe.

    Args:
        recipe: mapping with the name of the model under the key `model`, and optionally `settings`,
            `name` and `seed`. `Network.recipe` returns a recipe.
        schema: the `Schema` of the data.
        name: prefix of the tables' names. Default: the name in the recipe, or the model's default
            name if the recipe has no name.
        seed: seed of the tables' initial values. Default: the seed in the recipe, or 0 if the
            recipe has no seed.

    Raises:
        TypeError, ValueError: the recipe has an unknown key, the model lacks a setting in the
            recipe, or a value is of the wrong type or out of range.
    """
    unknown = set(recipe) - {"model", "settings", "name", "seed"}
    if unknown or "model" not in recipe:
        raise ValueError(
            f"a recipe must have the key 'model', and may have settings, name and seed, got "
            f"{', '.join(map(str, recipe))}"
        )
    model = recipe["model"]
    kind = get(model)
    chosen = dict(recipe.get("settings") or {})
    legal = settings(model)
    for key in chosen:
        if key not in legal:
            raise ValueError(
                f"model {model!r} has no setting {key!r}{_instead(str(key), legal, 'Settings')}"
            )
    for key, value in (("name", name), ("seed", seed)):
        value = recipe.get(key) if value is None else value
        if value is not None:
            chosen[key] = value
    return kind(schema, **chosen)


def _of_module(home: str, model: str) -> ModuleType:
    try:
        return importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name != home and not home.startswith(f"{error.name}."):
            raise
        raise ValueError(f"the module of model {model!r} is not installed: {error}") from error


def _of_file(path: Path) -> ModuleType:
    """Return a file as a module; only the first call runs the file."""
    if not path.is_file():
        raise ValueError(f"there is no file {path} with a model")
    whole = path.resolve()
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is not None and Path(main).resolve() == whole:
        return sys.modules["__main__"]
    name = f"{path.stem}_{hashlib.sha256(str(whole).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, whole)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    module_files[name] = str(path)
    return module


def _is_network(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Network)


def _checked(model: str, kind: Any) -> type[Network]:
    if not _is_network(kind):
        raise TypeError(
            f"the class of model {model!r} must derive from mindspore_rec.models.Network, got "
            f"{kind!r}"
        )
    return kind


def _instead(word: str, known: Any, title: str) -> str:
    """Return the end of a message about an unknown word: the nearest word and all known words."""
    near: Callable[..., list[str]] = difflib.get_close_matches
    best = near(word, list(known), 1)
    meant = f"; did you mean {best[0]!r}?" if best else "."
    return f"{meant} {title} are {', '.join(known) or 'none'}"
