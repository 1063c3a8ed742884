# SPDX-License-Identifier: Apache-2.0
"""What a conversion refuses, each by its message; the network is then as it was."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, mint, nn, ops

from mindspore_rec import MapParameter, convert, tables_of

pytestmark = pytest.mark.usefixtures("pynative")


class Net(nn.Cell):
    """Two embeddings, so that a refusal of one has another that must stay as well."""

    def __init__(self, embedding):
        super().__init__()
        self.good = nn.Embedding(5, 2)
        self.bad = embedding

    def construct(self, ids):
        return self.good(ids), self.bad(ids)


def refused(net, pattern, error=ValueError, **arguments):
    """Asserts the message, for a dry run too, and that nothing was changed."""
    cells = list(net.cells_and_names())
    names = [(id(p), p.name) for p in net.get_parameters()]
    for dry_run in (True, False):
        with pytest.raises(error, match=pattern):
            convert(net, dry_run=dry_run, **arguments)
    assert list(net.cells_and_names()) == cells
    assert [(id(p), p.name) for p in net.get_parameters()] == names


def to_half(cell):
    return cell.to_float(ms.float16)


def hooked(cell, register):
    getattr(cell, register)(lambda *_: None)
    return cell


class Scaled(nn.Embedding):
    def construct(self, ids):
        return 2 * super().construct(ids)


def ones(rows, dim, dtype=np.float32):
    return Tensor(np.ones((rows, dim), dtype))


@pytest.mark.parametrize(
    ("embedding", "pattern"),
    [
        (
            lambda: mint.nn.Embedding(5, 2, max_norm=1.0),
            r"'bad' \(mint.nn.Embedding\): max_norm=1.0 renormalizes its weights in place",
        ),
        (
            lambda: mint.nn.Embedding(5, 2, scale_grad_by_freq=True),
            r"'bad' \(mint.nn.Embedding\): scale_grad_by_freq=True scales gradients",
        ),
        (
            lambda: mint.nn.Embedding(5, 2, padding_idx=-2, _weight=ones(5, 2)),
            r"'bad' \(mint.nn.Embedding\): row padding_idx=-2 is not zeros",
        ),
        (
            lambda: mint.nn.Embedding(5, 2, dtype=ms.float16),
            r"'bad' \(mint.nn.Embedding\): rows of a table are float32, its weight is Float16",
        ),
        (
            lambda: nn.EmbeddingLookup(5, 2, max_norm=0.5),
            r"'bad' \(nn.EmbeddingLookup\): max_norm=0.5 goes through MindSpore's ClipByNorm",
        ),
        (
            lambda: nn.EmbeddingLookup(5, 2, dtype=ms.float16),
            r"'bad' \(nn.EmbeddingLookup\): rows of a table are float32",
        ),
        (
            lambda: nn.MultiFieldEmbeddingLookup(5, 2, 3),
            r"'bad' \(MultiFieldEmbeddingLookup\): its class has a construct of its own",
        ),
        (lambda: Scaled(5, 2), r"'bad' \(Scaled\): its class has a construct of its own"),
        (lambda: nn.Embedding(2, 8193), r"'bad' .*at most 8192 floats, its rows have 8193"),
        (lambda: to_half(nn.Embedding(5, 2)), r"'bad' .*to_float makes it compute in 16 bits"),
        (
            lambda: hooked(nn.Embedding(5, 2), "register_forward_hook"),
            r"'bad' .*it has hooks",
        ),
        (
            lambda: hooked(nn.Embedding(5, 2), "register_forward_pre_hook"),
            r"'bad' .*it has hooks",
        ),
        (
            lambda: hooked(nn.Embedding(5, 2), "register_backward_hook"),
            r"'bad' .*it has hooks",
        ),
    ],
)
def test_what_a_table_cannot_do(embedding, pattern, unique):
    net = Net(embedding())
    refused(net, pattern, prefix=f"{unique()}.")
    convert(net, names="good", prefix=f"{unique()}.")  # the other one is free to go
    assert len(tables_of(net)) == 1


def test_all_reasons_are_told_at_once():
    net = Net(mint.nn.Embedding(5, 2, max_norm=1.0, scale_grad_by_freq=True))
    net.good.to_float(ms.float16)
    refused(net, "(?s)nothing was changed.*'good'.*to_float.*max_norm.*scale_grad_by_freq")


def test_recomputation():
    net = Net(nn.Embedding(5, 2))
    net.bad.recompute()
    refused(net, "'bad' .*recompute would look its ids up twice")


# ---- weights with another use


class TiedParameter(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 2)
        self.projection = nn.Dense(2, 5, has_bias=False)
        self.projection.weight = self.embedding.embedding_table


class TiedByCode(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 2)

    def construct(self, ids):
        return ops.matmul(self.embedding(ids), self.embedding.embedding_table.T)


class TiedByAlias(TiedByCode):
    def construct(self, ids):
        source = self.embedding
        return self.logits(source(ids))

    def logits(self, rows):
        table = self.embedding
        return ops.matmul(rows, table.embedding_table.T)


class TiedInLoop(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.CellList([nn.Embedding(5, 2), nn.Embedding(6, 2)])

    def construct(self, rows):
        return [ops.matmul(rows, table.embedding_table.T) for table in self.embeddings]


class TiedInZip(TiedInLoop):
    def construct(self, rows):
        total = 0
        for k, (table, row) in enumerate(zip(self.embeddings, rows)):  # noqa: B905
            total = total + k * ops.matmul(row, table.embedding_table.T)
        return total


class TiedBelow(nn.Cell):
    def __init__(self):
        super().__init__()
        self.part = TiedByAlias()

    def construct(self, rows):
        return self.part.logits(rows)


class TiedBySuper(TiedByCode):
    def construct(self, ids):
        return super().construct(ids) + 1


class TiedInTuple(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 2)
        self.shared = (self.embedding.embedding_table,)


@pytest.mark.parametrize(
    ("network", "pattern"),
    [
        (
            TiedParameter,
            r"'embedding' .*'embedding.embedding_table' is tied, 'projection' \(Dense\) has it too",
        ),
        (
            TiedByCode,
            r"is tied, the code of the TiedByCode itself reads self.embedding.embedding_table",
        ),
        (TiedByAlias, r"is tied, the code of .* reads table.embedding_table"),
        (TiedInLoop, r"(?s)'embeddings.0'.*is tied.*'embeddings.1'.*is tied"),
        (TiedInZip, r"(?s)'embeddings.0'.*is tied.*'embeddings.1'.*is tied"),
        (TiedBelow, r"'part.embedding'.*is tied, the code of .* reads table.embedding_table"),
        (TiedBySuper, r"is tied, the code of .* reads self.embedding.embedding_table"),
        (TiedInTuple, r"is tied, the TiedInTuple itself has it too"),
    ],
)
def test_a_tied_weight(network, pattern):
    refused(network(), pattern)


def test_a_method_of_an_embedding_that_nobody_calls_is_no_obstacle_but_one_that_is_called_is(
    unique,
):
    class Projecting(nn.Embedding):
        def logits(self, rows):
            return ops.matmul(rows, self.embedding_table.T)

    class Calls(TiedByCode):
        def __init__(self):
            super().__init__()
            self.embedding = Projecting(5, 2)

        def construct(self, ids):
            return self.embedding.logits(self.embedding(ids))

    refused(Calls(), "is tied, the code of the Calls itself reads self.embedding_table")
    convert(Net(Projecting(5, 2)), prefix=f"{unique()}.")


def test_code_that_reads_no_weight_is_no_obstacle(unique):
    class Overrides(TiedByCode):
        def construct(self, ids):
            return self.embedding(ids) * self.embedding.embedding_size

    net = Overrides()
    convert(net, prefix=f"{unique()}.")
    assert net(Tensor([1], ms.int32)).shape == (1, 2)


def test_one_weight_only_partly_chosen_or_used_differently():
    def sharing(first, second):
        net = Net(second)
        net.good = first
        weight = first.weight if hasattr(first, "weight") else first.embedding_table
        if hasattr(second, "weight"):
            second.weight = weight
        else:
            second.embedding_table = weight
        return net

    refused(sharing(nn.Embedding(5, 2), nn.Embedding(5, 2)), "is tied, 'bad'", names="good")
    first = mint.nn.Embedding(5, 2, padding_idx=1)
    refused(
        sharing(first, mint.nn.Embedding(5, 2)),
        "shares its weight with 'bad', but padding_idx differs: 1, None",
    )
    refused(
        sharing(nn.Embedding(5, 2), nn.EmbeddingLookup(5, 2)),
        "shares its weight with 'bad', but reading zeros outside the vocabulary differs",
    )


# ---- optimizers, modes, names


def test_an_optimizer_inside_the_network():
    net = Net(nn.Embedding(5, 2))
    cell = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1))
    refused(cell, r"'optimizer' \(SGD\) holds the weights already: make the optimizer")


def test_an_optimizer_outside_is_warned_of(unique):
    net = Net(nn.Embedding(5, 2))
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    with pytest.warns(RuntimeWarning, match="SGD outside the network still hold the embeddings"):
        convert(net, prefix=f"{unique()}.")
    del optimizer


def test_a_sliced_parallel_mode():
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    try:
        refused(Net(nn.Embedding(5, 2)), "tables are not sliced over devices")
    finally:
        ms.reset_auto_parallel_context()


def test_a_name_in_use_leaves_the_network_and_closes_what_was_made(unique):
    prefix = unique()
    net = Net(nn.Embedding(5, 2))
    cells = list(net.cells_and_names())
    taken = MapParameter(prefix + "bad")
    with pytest.raises(ValueError, match=f"already used.*give another prefix=.*'{prefix}bad'"):
        convert(net, prefix=prefix)
    assert list(net.cells_and_names()) == cells
    taken.close()
    convert(net, prefix=prefix)  # 'good', made before the error, is free again
    assert [table.name for table in tables_of(net)] == [prefix + "good", prefix + "bad"]


def test_a_name_of_another_parameter(unique):
    net = Net(nn.Embedding(5, 2))
    net.other = Parameter(Tensor([1.0]), name=f"{unique()}.good")
    refused(net, "which a parameter of the network has", prefix=net.other.name[: -len("good")])


def test_names_that_match_nothing():
    pattern = r"'user\*' matches none; there are 'good', 'bad'"
    refused(Net(nn.Embedding(5, 2)), pattern, names=["good", "user*"])


@pytest.mark.parametrize(
    ("arguments", "error", "pattern"),
    [
        ({"names": []}, TypeError, "names must be a path"),
        ({"names": [3]}, TypeError, "names must be a path"),
        ({"min_size": 0}, ValueError, r"min_size must be in \[1, "),
        ({"min_size": "big"}, TypeError, "min_size must be an int"),
        ({"predicate": "big"}, TypeError, "predicate must be a function"),
        ({"predicate": lambda path, cell: None}, TypeError, "must return a bool, got None for"),
        ({"kind": "dense"}, ValueError, "kind must be one of 'hash', 'static', got 'dense'"),
        ({"key_dtype": ms.float32}, TypeError, "key_dtype must be int32 or int64"),
        ({"kind": "static", "key_dtype": ms.int32}, ValueError, "key_dtype is for kind='hash'"),
        ({"kind": "static", "permit_filter_value": 2}, ValueError, "permit_filter_value is for"),
        ({"kind": "static", "evict_filter_value": 2}, ValueError, "evict_filter_value is for"),
        ({"kind": "static", "param_init": 1.0}, ValueError, "param_init is for kind='hash' or"),
        ({"keep_weights": 1}, TypeError, "keep_weights must be a bool"),
        ({"prefix": None}, TypeError, "prefix must be a str"),
    ],
)
def test_arguments(arguments, error, pattern):
    refused(Net(nn.Embedding(5, 2)), pattern, error, **arguments)


def test_networks():
    with pytest.raises(TypeError, match="net must be a Cell, got list"):
        convert([nn.Embedding(5, 2)])
    with pytest.raises(TypeError, match="dry_run must be a bool"):
        convert(Net(nn.Embedding(5, 2)), dry_run="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="it is itself a nn.Embedding"):
        convert(nn.Embedding(5, 2))
    with pytest.raises(ValueError, match="Dense holds none"):
        convert(nn.Dense(2, 2))
