# SPDX-License-Identifier: Apache-2.0
"""The registry finds models by name, file, module and entry point, and recipes are made again."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from mindspore_rec import Schema, models, tables_of
from mindspore_rec.feature import CategoryColumn, LabelColumn
from mindspore_rec.train.models import model_names, registry
from models.common.features import PackedFeatures
from tests.support.processes import run_python

SOURCE = """
from mindspore_rec import models
from mindspore_rec.nn import MLP


class Perceptron(models.Network):
    def __init__(self, schema, *, hidden=(8,), name="perceptron", seed=0):
        super().__init__(schema, hidden=hidden, name=name, seed=seed)
        self.inputs = models.InputLayer(self.features, "concat", f"{name}.embedding", seed)
        self.deep = MLP(self.inputs.widths, hidden, out_features=1)

    def construct(self, ids, numbers=None):
        return self.deep(*self.inputs(ids, numbers))


class Forgetful(models.Network):
    def __init__(self, schema, *, hidden=(8,), width=2, name="forgetful", seed=0):
        super().__init__(schema, hidden=hidden, name=name, seed=seed)


NOTHING = 3
"""
SCHEMA = Schema([CategoryColumn("user"), CategoryColumn("item"), LabelColumn("clicked")])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "my_nets.py").write_text(SOURCE)
    return tmp_path / "my_nets.py"


def built(recipe: dict[str, Any], **others: Any) -> models.Network:
    """A network of a recipe, whose tables are closed."""
    net = models.build(recipe, SCHEMA, **others)
    for table in tables_of(net):
        table.close()
    return net


@pytest.mark.parametrize("name", ["dcn", "logistic_regression", "wide_deep"])
def test_a_recipe_is_json_and_makes_the_network_again(unique, name):
    net = built({"model": name}, name=unique(), seed=7)
    recipe = json.loads(json.dumps(net.recipe()))
    again = built(recipe)
    assert type(again).__qualname__ == type(net).__qualname__ and again.recipe() == recipe
    assert [p.name for p in again.get_parameters()] == [p.name for p in net.get_parameters()]
    assert [t.name for t in tables_of(again)] == [t.name for t in tables_of(net)]
    assert built(recipe, name="other", seed=8).recipe() == {**recipe, "name": "other", "seed": 8}


def test_settings_that_are_records_are_json_too(unique):
    mixture = models.CrossMixture(experts=2, rank=3)
    recipe = built({"model": "dcn_v2", "settings": {"cross": mixture}}, name=unique()).recipe()
    assert recipe["settings"]["cross"] == {"experts": 2, "rank": 3, "stacked": False}
    assert built(recipe).cross.experts == 2
    assert models.settings("dcn_v2")["cross"] == "matrix"
    assert built({"model": "dcn_v2", "settings": {"cross": "mixture"}}).cross.experts == 4


def test_a_model_of_a_file(file, unique, monkeypatch):
    monkeypatch.chdir(file.parent)
    kind = models.get("my_nets.py:Perceptron")
    assert models.get(str(file) + ":Perceptron") is kind
    recipe = built({"model": "my_nets.py:Perceptron", "settings": {"hidden": [4]}}).recipe()
    assert recipe["model"] == "my_nets.py:Perceptron"
    assert built(recipe, name=unique()).recipe()["settings"] == {"hidden": [4]}
    with pytest.raises(ValueError, match=r"no class 'Percepton'; did you mean 'Perceptron'\?"):
        models.get("my_nets.py:Percepton")
    with pytest.raises(TypeError, match="must derive from mindspore_rec.models.Network"):
        models.get("my_nets.py:NOTHING")
    with pytest.raises(ValueError, match="no file other.py"):
        models.get("other.py:Perceptron")
    with pytest.raises(TypeError, match="must pass all its arguments .* it lacks width"):
        models.build({"model": "my_nets.py:Forgetful"}, SCHEMA)


def test_a_file_with_an_error_is_read_again(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import no_such_module_of_a_test\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_a_test"):
        models.get(f"{path}:Net")
    path.write_text(SOURCE)
    assert models.get(f"{path}:Perceptron").__name__ == "Perceptron"


def test_a_model_of_a_module_and_of_an_entry_point(file, monkeypatch):
    monkeypatch.syspath_prepend(str(file.parent))
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    place = "my_nets:Perceptron"
    kind = models.get(place)
    assert built({"model": place}).recipe()["model"] == place
    point = EntryPoint("my_perceptron", place, "mindspore_rec.models")
    monkeypatch.setattr(model_names, "entry_points", lambda group: EntryPoints([point]))
    assert "my_perceptron" in models.names() and models.get("my_perceptron") is kind
    assert built({"model": "my_perceptron"}).recipe()["model"] == "my_perceptron"
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    with pytest.raises(ValueError, match="module of model 'no_such_package:Net' is not installed"):
        models.get("no_such_package:Net")


def test_a_registered_model(monkeypatch):
    class Baseline(models.LogisticRegression):
        pass

    net = Baseline(SCHEMA)
    for table in tables_of(net):
        table.close()
    with pytest.raises(ValueError, match=r"register\('my_model', Baseline\)"):
        net.recipe()
    monkeypatch.setattr(model_names, "classes", {})
    monkeypatch.setattr(registry, "classes", model_names.classes)
    assert models.register("baseline", Baseline) is Baseline
    assert "baseline" in models.names()
    assert net.recipe()["model"] == "baseline"
    assert type(built(net.recipe())) is Baseline
    with pytest.raises(ValueError, match="belongs to the model"):
        models.register("dcn", Baseline)
    with pytest.raises(ValueError, match="without a colon"):
        models.register("a:b", Baseline)
    with pytest.raises(TypeError, match="must derive"):
        models.register("cell", object)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"model": "dcnv2"}, r"no model has the name 'dcnv2'; did you mean 'dcn_v2'\?"),
        ({"model": "dcn", "settings": {"hiden": [3]}}, "no setting 'hiden'; did you mean 'hidden'"),
        ({"model": "dcn", "settings": {"name": "x"}}, "no setting 'name'"),
        ({"model": "dcn", "layers": 3}, "must have the key 'model', and may have settings"),
        ({"settings": {}}, "must have the key 'model'"),
        ({"model": "dcn", "settings": {"layers": 0}}, "layers"),
    ],
)
def test_recipes_that_are_refused(recipe, message):
    with pytest.raises(ValueError, match=message):
        models.build(recipe, SCHEMA)


def test_a_network_of_other_features_has_no_schema_and_no_recipe(unique):
    net = models.DCN(PackedFeatures(2), hidden=(4,), name=unique())
    assert net.schema is None
    with pytest.raises(ValueError, match="was not made from a schema"):
        net.recipe()
    for table in tables_of(net):
        table.close()


def test_a_model_of_a_script_is_found_by_its_file(file):
    script = file.with_name("train.py")
    script.write_text(
        SOURCE
        + """
if __name__ == "__main__":
    from mindspore_rec import Schema
    from mindspore_rec.feature import CategoryColumn

    schema = Schema([CategoryColumn("user")])
    recipe = Perceptron(schema).recipe()
    print(recipe["model"], models.get(recipe["model"]) is Perceptron)
"""
    )
    printed = run_python(str(script), cwd=file.parent)
    assert printed.split() == [f"{script}:Perceptron", "True"]
