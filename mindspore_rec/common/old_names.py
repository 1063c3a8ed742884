# SPDX-License-Identifier: Apache-2.0
"""Names of MindRec and Rec SDK that this library lacks, each with its replacement.

docs/from_mindrec.md and docs/from_rec_sdk.md explain each name.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ALIASES", "ARGUMENTS", "SENTENCES", "refuse_arguments"]

ALIASES: Mapping[str, str] = {"terminate_config_initializer": "terminate"}
"""Additional names for functions of the package."""

_LAUNCH = "`python -m mindspore_rec.launch -n N train.py`"
_OWN_BATCHES = "nothing to call: a network looks rows up by itself, with a dataset that gives ids"
_TABLE = (
    "EmbeddingBag(TableConfig(dim), mode) for each, or GroupedEmbedding for several in one operator"
)
_HASH_OPTIMIZER = (
    "give LazyAdam, FTRL, Adagrad or SGD of mindspore_rec the network's parameters, which has "
    "dense ones and tables: LazyAdam(net.trainable_params(), learning_rate)"
)
_PLACEMENT = f"{_LAUNCH} divides tables by key, or as TableConfig(placement=) says"

SENTENCES: Mapping[str, str] = {
    # ---- Rec SDK
    "ASCEND_SPARSE_LOOKUP_ID_OFFSET": "table.lookup_with_handles(ids) gives rows and handles",
    "EvictHook": "rows of features with a threshold are evicted by themselves; to evict at "
    "intervals, use EvictCallback, and tables with Eviction(..., trigger='callback')",
    "GraphModifierHook": _OWN_BATCHES,
    "create_hash_optimizer": _HASH_OPTIMIZER,
    "create_hash_optimizer_by_address": f"{_HASH_OPTIMIZER}. By address: "
    "optimizer.apply_by_handle(grads, handles)",
    "export": "table.export_data() gives a table's rows, save_checkpoint writes the network's",
    "get_asc_insert_func": "use get_insert_func(specs), whose result goes to "
    "dataset.apply(...) after batch(...), not to dataset.map(...)",
    "import_host_pipeline_ops": "its set_threshold is table.set_threshold(n)",
    "modify_graph_and_start_emb_cache": _OWN_BATCHES,
    "start_asc_pipeline": _OWN_BATCHES,
    # ---- Rec SDK Torch
    "DistributedModelParallel": _PLACEMENT,
    "EmbCacheEmbeddingCollection": "use HashEmbeddingLookup(dim, cache=CacheConfig(...)) for each",
    "EmbeddingShardingPlanner": _PLACEMENT,
    "HashEmbeddingBagCollection": f"use {_TABLE}",
    "HashEmbeddingBagConfig": "use create_table(key_dtype, dim, name, emb_initializer), or a "
    "TableConfig; tables grow, and have no num_embeddings",
    "HashEmbeddingCollection": "use HashEmbeddingLookup(dim) for each",
    "HybridTrainPipelineSparseDist": "use RecModel(net, loss, optimizer).train(epochs, batches)",
    "KeyedJaggedTensor": "give EmbeddingBag ids [bags, length] with a padding key, or ids [n] with "
    "offsets [bags]",
    "apply_optimizer_in_backward": "give RecModel the optimizer, Adagrad(net.trainable_params()): "
    "it steps after the backward pass",
    "get_default_hybrid_sharders": _PLACEMENT,
    # ---- MindRec
    "DataReceiver": "it is in mindspore_rec.stream, and reads a Kafka topic",
    "DataSender": "it is in mindspore_rec.stream, and writes a Kafka topic",
    "set_ps_context": "there is no parameter server: rows are in this process; "
    "CacheConfig(host_bytes=...) puts the others on Redis or SSD",
}
"""Replacement of each name that the package does not have."""

_LOOP = "in the callbacks of RecModel.train"
_DELTA = f"use RecCheckpoint(directory, every_seconds=N, delta_every_seconds=M) {_LOOP}"
_PADDING = "padding_keys alone says which keys read zeros and never get a row"

ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "create_table": {
        "access_and_evict_config": "give it specs=[FeatureSpec(...)], or admission= and eviction=",
        "all2all_gradients_op": "workers have the same gradients as one process: the mean over all "
        "rows, or the sum with a loss_fn whose reduction is 'sum'",
        "enable_merge": "features whose specs name one table share it, and GroupedEmbedding looks "
        "several tables up in one operator",
        "fusion_optimizer_var": "a row's optimizer state is beside its values in any case",
        "hashtable_threshold": "every table of create_table is a hash table; EmbeddingLookup has "
        "a table of fixed size",
        "init_param": "put the factor into emb_initializer, such as "
        "mindspore.common.initializer.Normal(0.01)",
        "is_dp": "describe the table by config=TableConfig(dim, name=..., "
        "placement='replicated'), which keeps it on every worker",
        "is_save": "save_checkpoint and RecCheckpoint save every table of the network",
        "optimizer_list": "an optimizer is given its tables, not a table its optimizer: "
        "CombinedOptimizer([LazyAdam(some), FTRL(others)])",
        "padding_keys_len": _PADDING,
        "padding_keys_mask": _PADDING,
        "shard_num": f"{_LAUNCH} decides the number of workers, which divide the rows by key",
        "value_dtype": "describe the table by config=TableConfig(dim, name=..., value_dtype=...)",
    },
    "get_insert_func": {
        "args_index_list": "give each FeatureSpec its column: index_key=",
        "dump_graph": "there is no graph to dump",
        "feature_numbers": "a feature may have any number of ids in a row",
        "is_training": "what is inserted is for the network to say: net.set_train()",
        "table_names": "give each FeatureSpec its table: table_name=",
        "tgt_key_specs": "give the specs first: get_insert_func(specs)",
    },
    "init": {
        "max_steps": "give it to the loop: RecModel.train(..., max_steps=N)",
        "train_steps": "give it to the loop: RecModel.train(..., max_steps=N), and EvalCallback("
        "every_steps=N) to evaluate on the way",
        "eval_steps": "RecModel.eval takes one pass over its data set: give it as many batches",
        "save_steps": f"use RecCheckpoint(directory, every_steps=N) {_LOOP}",
        "if_load": "call mindspore_rec.load_checkpoint",
        "restore_model_version": "call mindspore_rec.load_checkpoint on the directory of that step",
        "save_checkpoint_due_time": f"use RecCheckpoint(directory, every_seconds=N) {_LOOP}",
        "save_delta_checkpoints_secs": _DELTA,
        "is_incremental_checkpoint": _DELTA,
        "recent_key_count_threshold": f"a delta has every row that changed: {_DELTA}",
        "use_dynamic": "batches may always differ in shape",
        "bind_cpu": "set num_threads, and bind the process with taskset",
        "prefetch_batch_number": "give it to the data set: "
        "mindspore.dataset.config.set_prefetch_size",
        "use_hot": "the rows used most are in the highest tier by themselves: CacheConfig",
        "use_mpi": f"{_LAUNCH} starts N workers over MPI; without it training runs in one process",
        "use_lccl": "workers exchange over MPI, between hosts and within one",
        "rank_id": f"{_LAUNCH} gives each worker its rank: it is init().rank",
        "rank_size": f"{_LAUNCH} decides the number of workers: it is init().size",
        "local_rank_size": "`python -m mindspore_rec.launch --hosts a:8,b:8` has so many on each "
        "host",
    },
}
"""For each function, replacements of the arguments of Rec SDK that the function does not have."""


def refuse_arguments(function: str, given: Mapping[str, object], taken: str) -> None:
    """Raise the error for arguments that a function does not have.

    Args:
        function: name of the function.
        given: the illegal arguments by name.
        taken: text that names the legal arguments in the error message.

    Raises:
        TypeError: `given` is not empty. For an argument of Rec SDK, the error message names the
            replacement.

    Example:
        >>> refuse_arguments("create_table", {"is_save": True}, "key_dtype, dim and others")
        Traceback (most recent call last):
        ...
        TypeError: create_table takes no argument 'is_save': save_checkpoint and RecCheckpoint save
            every table of the network
    """
    for argument in given:
        instead = ARGUMENTS[function].get(argument)
        rest = f", only {taken}" if instead is None else f": {instead}"
        raise TypeError(f"{function} takes no argument '{argument}'{rest}")
