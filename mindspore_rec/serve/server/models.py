# SPDX-License-Identifier: Apache-2.0
"""The models of a server, by name and version."""

from __future__ import annotations

import argparse
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mindspore_rec.serve.following.status import Status
from mindspore_rec.serve.protection.admission import Drain
from mindspore_rec.serve.protocol.request_error import NotFoundError, NotReadyError, RequestError
from mindspore_rec.serve.server.model_reports import statistics
from mindspore_rec.serve.server.served_model import Served, ServedModel

if TYPE_CHECKING:
    from mindspore_rec.serve.protection.metrics import Metrics

__all__ = ["Models", "add_model_arguments", "change_model", "parsed_models"]

logger = logging.getLogger("mindspore_rec")

LOADING, READY, UNLOADING, UNAVAILABLE = "LOADING", "READY", "UNLOADING", "UNAVAILABLE"


@dataclass
class _Place:
    """One declared version of a model; it may or may not be loaded."""

    make: Callable[[], Served] | None
    model: ServedModel | None = None
    state: str = LOADING
    reason: str = ""


class Models:
    """Models by name, each in one or several versions; a version's number is its training step.

    Any number of threads may read at the same time; `load`, `unload` and `open` run one at a time.

    Args:
        max_rows: see `ServedModel`.
        drain: state that tells whether the server is stopping; while the server is stopping, the
            models are not ready. Default: never.
        metrics: see `ServedModel`. Default: none.
        max_age_seconds: highest age of a model's newest state at which the model counts as ready;
            0: any age. Default: 0. A model that is too old is not ready, but still answers.

    Example:
        >>> models = Models()
        >>> models.add("click")
        >>> models.index()
        [{'name': 'click', 'version': '', 'state': 'LOADING', 'reason': ''}]
    """

    def __init__(
        self,
        max_rows: int = 1024,
        drain: Drain | None = None,
        metrics: Metrics | None = None,
        max_age_seconds: float = 0.0,
    ) -> None:
        self._max_age = max_age_seconds
        self._max_rows = max_rows
        self._drain = Drain() if drain is None else drain
        self._metrics = metrics
        self._places: dict[str, list[_Place]] = {}
        self._changing = threading.Lock()
        self._placing = threading.Lock()  # held shortly, by whoever puts a model in or takes it out
        self._closed = False

    def add(self, name: str, make: Callable[[], Served] | None = None) -> None:
        """Declare a model; declaring the same name again adds another version of the model.

        Args:
            name: name of the model, at least one character, without '/'.
            make: function that makes the model's predictor; None if the caller passes the predictor
                to `open`. Default: None.

        Raises:
            ValueError: the name is empty or contains '/'.
        """
        if not name or "/" in name:
            raise ValueError(f"the name of a model must be a text without '/', got {name!r}")
        self._places.setdefault(name, []).append(_Place(make))

    @property
    def names(self) -> list[str]:
        """Names of all models."""
        return list(self._places)

    @property
    def ready(self) -> bool:
        """True if all models are ready, at least one model answers, and the server is not stopping.

        A model is ready if all its versions answer requests and its newest state is not too old.
        Models that were unloaded or could not be loaded are ignored.
        """
        if not self._drain.ready:
            return False
        places = [place for places in self._places.values() for place in places]
        return (
            all(place.model is not None or place.state == UNAVAILABLE for place in places)
            and any(place.model is not None for place in places)
            and all(self.fresh(name) for name in self._places)
        )

    def model_ready(self, name: str, version: str | None) -> bool:
        """Return True if a model answers requests. If `version` is None, also require a recent
        state.

        Raises:
            NotFoundError: there is no such model, or no such version of the model.
        """
        try:
            self.find(name, version)
        except NotReadyError:
            return False
        return version is not None or self.fresh(name)

    def fresh(self, name: str) -> bool:
        """Return True unless the newest state of a model's loaded versions is too old.

        Raises:
            NotFoundError: there is no such model.
        """
        places = self._of(name)
        if self._max_age == 0:
            return True
        models = [place.model for place in places if place.model is not None]
        return not models or min(model.age_seconds for model in models) <= self._max_age

    def open(self, name: str, predictor: Served) -> None:
        """Set the predictor of a declared version; from now on, this version answers requests.

        Raises:
            NotFoundError: there is no such model.
            NotReadyError: the server is stopping.
            ValueError: the inputs of the predictor's network are not known.
        """
        with self._changing:
            place = next(each for each in self._of(name) if each.model is None)
            self._put(place, ServedModel(name, predictor, self._max_rows, self._metrics))

    def load(self, name: str) -> None:
        """Create predictors for all versions of a model that have no predictor.

        Raises:
            NotFoundError: there is no such model.
            Exception: the error of the first predictor that cannot be created. The model version of
                the failed predictor stays unavailable, with the error as the reason.
        """
        with self._changing:
            for place in self._of(name):
                if place.model is None and place.make is not None:
                    self._load(name, place, place.make)

    def _load(self, name: str, place: _Place, make: Callable[[], Served]) -> None:
        place.state, place.reason = LOADING, ""
        try:
            predictor = make()
            try:
                model = ServedModel(name, predictor, self._max_rows, self._metrics)
            except BaseException:
                predictor.close()
                raise
            self._put(place, model)
        except BaseException as error:
            place.state, place.reason = UNAVAILABLE, f"{type(error).__name__}: {error}"[:1000]
            raise

    def _put(self, place: _Place, model: ServedModel) -> None:
        with self._placing:
            if not self._closed:
                place.model, place.state = model, READY
                return
        model.close()
        raise NotReadyError("the server is stopping")

    def _take(self, place: _Place) -> None:
        with self._placing:
            model, place.model = place.model, None
        if model is not None:
            place.state, place.reason = UNLOADING, ""
            model.close()
            place.state, place.reason = UNAVAILABLE, "unloaded"

    def unload(self, name: str) -> None:
        """Answer all requests that have arrived for a model, then free the model's memory.

        Raises:
            NotFoundError: there is no such model.
        """
        with self._changing:
            for place in self._of(name):
                self._take(place)

    def find(self, name: str, version: str | None = None) -> ServedModel:
        """Return a model.

        Args:
            name: name of the model.
            version: the model's version. Default: the newest version.

        Raises:
            NotFoundError: there is no such model, or no such version of the model.
            NotReadyError: the model is not loaded yet, could not be loaded, or has been unloaded.
        """
        places = self._of(name)
        models = [place.model for place in places if place.model is not None]
        if not models:
            state = places[0].state
            what = "is not loaded yet" if state == LOADING else f"is {state.lower()}"
            reason = f": {places[0].reason}" if places[0].reason else ""
            raise NotReadyError(f"the model '{name}' {what}{reason}")
        if version is None and len(models) == 1:
            return models[0]
        versions: dict[int, ServedModel] = {}
        for model in models:
            versions.setdefault(model.status().version, model)
        if version is None:
            return versions[max(versions)]
        for number, model in versions.items():
            if str(number) == version:
                return model
        there = ", ".join(map(str, sorted(versions)))
        does = "does" if len(versions) == 1 else "do"
        raise NotFoundError(f"version {version[:80]} does not answer, version {there} {does}")

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model that answer requests, the newest version last."""
        numbers = {status.version for status in self.statuses(name)}
        return [str(number) for number in sorted(numbers)]

    def statuses(self, name: str) -> list[Status]:
        """Return the status of each version that answers requests, for one model."""
        models = (place.model for place in self._of(name))
        return [model.status() for model in models if model is not None]

    def statistics(self, name: str = "", version: str | None = None) -> list[dict[str, Any]]:
        """Return the statistics of the models that answer requests.

        Args:
            name: name of the model; '' for all models. Default: ''.
            version: the model's version. Default: all versions.

        Raises:
            NotFoundError: there is no such model, or no such version of the model.
            NotReadyError: `version` is set, and this version is not loaded.
        """
        if version is not None:
            return [statistics(self.find(name, version))]
        names = [name] if name else self.names
        models = (place.model for each in names for place in self._of(each))
        return [statistics(model) for model in models if model is not None]

    def index(self, ready: bool = False) -> list[dict[str, str]]:
        """Return the name, version and state of each model, and the reason for the state.

        Args:
            ready: whether to return only the models that answer requests. Default: False.
        """
        entries = []
        for name, places in self._places.items():
            for place in places:
                model = place.model
                if model is None and ready:
                    continue
                version = "" if model is None else str(model.status().version)
                entries.append(
                    {"name": name, "version": version, "state": place.state, "reason": place.reason}
                )
        return entries

    def close(self) -> None:
        """Unload all models; a model that is still loading is closed when it has loaded."""
        with self._placing:
            self._closed = True
        for places in self._places.values():
            for place in places:
                self._take(place)

    def _of(self, name: str) -> list[_Place]:
        if name not in self._places:
            there = ", ".join(f"'{each}'" for each in self._places)
            raise NotFoundError(f"there is no model '{name[:80]}', there is {there}")
        return self._places[name]


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--model` and `--model-control`."""
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME=PATH",
        help="a model by name, in place of PATH and --name; once for each; a name that comes again "
        "is a further version of that model. Their networks are those that the checkpoints name",
    )
    parser.add_argument(
        "--model-control",
        choices=("none", "explicit"),
        default="none",
        help="explicit: clients may unload models and load them again; default: %(default)s",
    )


def parsed_models(path: str | None, name: str, models: list[str] | None) -> list[tuple[str, str]]:
    """Return the names and directories of the models in a command line.

    Raises:
        ValueError: PATH and `--model` are both missing or both present; a model is not of the form
            NAME=PATH; or a model's name is empty or contains '/'.

    Example:
        >>> parsed_models(None, "model", ["click=runs/a", "buy=runs/b"])
        [('click', 'runs/a'), ('buy', 'runs/b')]
    """
    if (path is None) == (not models):
        raise ValueError("give either PATH or --model NAME=PATH")
    if path is not None:
        if not name or "/" in name:
            raise ValueError(f"--name must be a text without '/', got {name!r}")
        return [(name, path)]
    pairs = []
    for text in models or ():
        key, sign, directory = text.partition("=")
        if not (key and sign and directory) or "/" in key:
            raise ValueError(f"--model must be NAME=PATH, its name without '/', got {text!r}")
        pairs.append((key, directory))
    return pairs


def change_model(
    models: Models, name: str, load: bool, allowed: bool, parameters: Mapping[str, Any]
) -> None:
    """Load or unload a model for a client.

    Args:
        models: the models of the server.
        name: name of the model.
        load: True to load the model, False to unload it.
        allowed: whether clients may load and unload models.
        parameters: parameters of the request; only `unload_dependents` is allowed, and it has no
            effect.

    Raises:
        RequestError: clients may not load and unload models, or the request tries to change a
            declared model.
        NotFoundError: there is no such model.
        NotReadyError: the model cannot be loaded.
    """
    if not allowed:
        raise RequestError("loading and unloading is off: start with --model-control explicit")
    if set(parameters) - {"unload_dependents"}:
        raise RequestError("parameters of loading are not supported: models are as declared")
    try:
        (models.load if load else models.unload)(name)
    except NotFoundError:
        raise
    except Exception as error:  # whatever is wrong with its files
        logger.warning("model '%s' cannot be loaded", name, exc_info=error)
        raise NotReadyError(f"{type(error).__name__}: {error}"[:1000]) from error
