# SPDX-License-Identifier: Apache-2.0
"""The page for those who come from MindRec: its programs run, and its names are those there are."""

from __future__ import annotations

import inspect
import re

import mindspore as ms
import pytest

import mindspore_rec
from mindspore_rec import CacheConfig, HashEmbeddingLookup, RecModel
from tests.support.processes import ROOT, run_python

PAGE = (ROOT / "docs" / "from_mindrec.md").read_text(encoding="utf-8")


def block(title: str) -> str:
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.S)
    return code


@pytest.mark.parametrize("mode", ["GRAPH_MODE", "PYNATIVE_MODE"])
def test_a_table_in_a_graph(tmp_path, mode):
    text = block("A table in a graph").replace("context.GRAPH_MODE", f"context.{mode}")
    (tmp_path / "program.py").write_text(text)
    assert run_python("program.py", cwd=tmp_path).strip() == "(2, 128) 1.0 1.0"


def test_wide_and_deep_with_two_optimizers(tmp_path):
    learned = "print(float(train_net.network(*map(ms.Tensor, batches[0]))[0]) < 0.3)\n"
    (tmp_path / "program.py").write_text(block("Wide & Deep with two optimizers") + learned)
    assert run_python("program.py", cwd=tmp_path).split("\n")[:2] == ["[100, 100]", "True"]


def test_online_learning_goes_on_where_it_stopped(tmp_path):
    (tmp_path / "program.py").write_text(block("Online learning"))
    assert run_python("program.py", cwd=tmp_path).split()[-1] == "100"
    assert list((tmp_path / "ckpt").glob("*100.full"))


def test_upstream_signatures_are_ours():
    for ours, names in (
        (
            HashEmbeddingLookup,
            "embedding_size key_dtype param_init sparse max_norm permit_filter_value "
            "evict_filter_value vocab_cache_size",
        ),
        (
            RecModel,
            "network loss_fn optimizer metrics eval_network eval_indexes amp_level boost_level",
        ),
        (RecModel.online_train, "self train_dataset callbacks dataset_sink_mode sink_size"),
    ):
        found = list(inspect.signature(ours).parameters)
        assert found[: len(names.split())] == names.split()


def test_names_on_the_page_are_there():
    for name in re.findall(r"`mindspore_rec\.(\w+)", PAGE):
        assert hasattr(mindspore_rec, name) or name == "stream", name
    for module in re.findall(r"python -m ([a-z_.]+[a-z_])", PAGE):
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    for path in re.findall(r"\]\((\.\./[^)]+|[a-z_]+\.md)\)", PAGE):
        assert (ROOT / "docs" / path).exists(), path


def test_vocab_cache_size_and_sparse(unique):
    HashEmbeddingLookup(4, ms.int32, "normal", True, None, 1, 100, 0, name=unique())
    with pytest.raises(ValueError, match=r"vocab_cache_size.*got 9: .*CacheConfig\(device_rows=9"):
        HashEmbeddingLookup(4, vocab_cache_size=9, name=unique())
    HashEmbeddingLookup(4, cache=CacheConfig(device_rows=9), name=unique())  # as it says
    with pytest.raises(ValueError, match="sparse must be True.*Leave sparse out"):
        HashEmbeddingLookup(4, sparse=False, name=unique())
    with pytest.raises((TypeError, ValueError), match="vocab_cache_size must be"):
        HashEmbeddingLookup(4, vocab_cache_size=-1, name=unique())
