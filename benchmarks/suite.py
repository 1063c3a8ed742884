# SPDX-License-Identifier: Apache-2.0
"""The list of benchmarks: measurements, requirements, and settings for `run_all.py`."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from mindspore_rec.common.extras import pip_install

MOVIELENS = "MINDSPORE_REC_MOVIELENS_DIR"
CENSUS = "MINDSPORE_REC_CENSUS_DIR"
NEEDS = (
    "Kafka",
    "Redis",
    "torch",
    "scikit-learn",
    "MovieLens",
    "Census-Income",
    "Open MPI",
    "root",
    "NVIDIA GPU",
)


@dataclass(frozen=True)
class Benchmark:
    """One script.

    Args:
        measures: description of the measured quantities.
        minute: arguments for a run of about a minute on 2 idle cores. A few scripts take up to 35
            minutes. `{disk}` stands for a directory on the disk to measure, and
            `{movielens}` for the directory of MovieLens' files.
        tiny: arguments for a run of a few seconds, which only shows that the script works.
        needs: names of `NEEDS`.
        path: path of the script, relative to the repository's root. Default: `benchmarks/NAME.py`
            for the benchmark NAME.
        codes: exit codes that mean that all measurements were made. Default: 0.
    """

    measures: str
    minute: str
    tiny: str
    needs: tuple[str, ...] = ()
    path: str = ""
    codes: tuple[int, ...] = (0,)


SUITE: dict[str, Benchmark] = {
    "accuracy_table": Benchmark(
        "AUC and log loss of the models beside logistic regression and boosted trees",
        "--set synthetic --rows 400000 --models wide_deep deepfm dlrm --seeds 0",
        "--set synthetic --rows 5000 --models deepfm --seeds 0",
        ("scikit-learn",),
    ),
    "accuracy_twin": Benchmark(
        "learning curves of a model and its PyTorch twin from the same weights and batches",
        "--rows 200000 --test-rows 50000 --models dcn deepfm",
        "--rows 20000 --test-rows 5000 --models deepfm --evaluations 1",
        ("torch",),
        codes=(0, 1),  # 1: the twins differ by more than promised
    ),
    "bare_products": Benchmark(
        "GFLOP/s of the matrix products of a step of dense layers, by oneDNN alone",
        "--batch 4096 16000 --rounds 20",
        "--layers 20-64-32 --batch 300 --rounds 2",
    ),
    "beside_trees": Benchmark(
        "AUC of `mindspore-rec train` with its defaults, beside LightGBM, CatBoost and logistic "
        "regression",
        "--data {movielens}/.. --tasks movielens_time --learners mindspore-rec,LightGBM",
        "--data {movielens}/.. --tasks movielens_time --learners logistic-regression",
        ("MovieLens", "scikit-learn"),
    ),
    "checkpoint_stall": Benchmark(
        "stall of a training step by a delta checkpoint, and samples/s with and without",
        "--seconds 8 --rounds 2 --directory {disk}",
        "--rows 5000 --batch 64 --hidden 16 --seconds 12 --rounds 1 --directory {disk}",
    ),
    "data_pipeline": Benchmark(
        "rows/s of the reader of Parquet and MindRecord",
        "--rows 1000000 --rounds 3",
        "--rows 20000 --rounds 1",
        codes=(0, 1),  # 1: slower than promised
    ),
    "dynamic_features": Benchmark(
        "time of a step with admission or eviction by that without; pauses of a sweep",
        "--rows 1000000 --rounds 20 --policies none count idle_steps lru --sweep-rows 2000000 "
        "--sweeps evict_by_callback",
        "--batch 64 --fields 4 --rows 20000 --rounds 3 --policies count --sweep-rows 20000 "
        "--sweeps evict_by_callback",
    ),
    "embedding_step": Benchmark(
        "cost of one training step of one table, beside MindSpore's own and the memory's floor",
        "--rounds 30",
        "--batch 64 --fields 3 --rows 3000 --rounds 3",
    ),
    "example_dynamic_features": Benchmark(
        "rows and AUC over a drifting stream, with a policy and without (all defaults, 3 minutes)",
        "",
        "--samples 20000 --life 5000 --alive 50 --fields 2 --batch 100 --window 20",
        path="examples/dynamic_features/train.py",
    ),
    "gpu_step": Benchmark(
        "training samples/s with dense layers on a GPU, by samples/s on cores; parts of the step",
        "--cuda /usr/local/cuda --batch 4096 16000 --seconds 2",
        "--devices cpu --networks dlrm --batch 64 --rows 4000 --steps 2",
        ("NVIDIA GPU",),
    ),
    "gpu_torch": Benchmark(
        "training samples/s of the same networks in PyTorch, with tables on the GPU too",
        "--batch 4096 16000",
        "--networks dlrm --batch 64 --rows 4000 --steps 2 --blocks 2",
        ("torch", "NVIDIA GPU"),
    ),
    "grouped_tables": Benchmark(
        "a step over 26 small tables: separate lookups, one grouped lookup, one table",
        "",
        "--batch 64 --tables 3 --rows 100 --steps 3",
    ),
    "history_twins": Benchmark(
        "losses of DIN, BST, SASRec and HSTU beside PyTorch twins from equal weights and batches",
        "--tasks seen",
        "--nets hstu --tasks seen --steps 20 --batch 32",
        ("torch",),
        path="benchmarks/sequences/history_twins.py",
        codes=(0, 1),  # 1: the twins differ by more than promised
    ),
    "hybrid_parallel": Benchmark(
        "samples/s of workers over single processes; what exchanges cost; balance of rows",
        "--rounds 5 --steps 6",
        "--models wide_deep_128 --batch 64 --rows 2600 --rounds 1 --steps 2 --balance 2 "
        "--balance-keys 10000",
        ("Open MPI",),
    ),
    "model_options": Benchmark(
        "a step of DCN-V2 with each form of its numbers, and with several members",
        "--steps 20",
        "--batch 64 --ids 2 --numbers 2 --rows 50 --members 2 --steps 2",
    ),
    "model_step": Benchmark(
        "training samples/s of every model beside the same network on MindSpore's cells; parts of "
        "the step beside bare products and tables",
        "--rows 1000000 --rounds 8",
        "--rows 2600 --batch 64 --rounds 2 --models deepfm",
    ),
    "multi_level_cache": Benchmark(
        "samples/s of a table over SSD or Redis by the same table in memory, Zipf 1.2",
        "--rows 4000000 --steps 20 --rounds 2 --only ssd --only redis --ssd-path {disk}",
        "--rows 20000 --batch 64 --steps 8 --rounds 1 --fio-seconds 0 --only ssd --ssd-path {disk}",
        ("Redis",),
    ),
    "next_item": Benchmark(
        "Recall@10 and NDCG@10 of the next item by popularity, item-kNN, EASE, ALS, BPR and a "
        "Markov chain, split by time",
        "--data {movielens}/.. --rows 3000",
        "--data {movielens} --tasks movielens --days 5 --rows 100",
        ("MovieLens", "scikit-learn"),
    ),
    "online_freshness": Benchmark(
        "seconds from an event sent to Kafka to its effect in a predictor's answer",
        "--warm-up 50000 --probes 25",
        "--rate 1000 --probes 2 --every 0.5 --warm-up 2000",
        ("Kafka",),
    ),
    "online_movielens": Benchmark(
        "AUC on MovieLens' last ratings of a model that learns online by that of one that does not",
        "--data {movielens}",
        "--data {movielens} --seeds 1 --intervals 50 --window 200",
        ("Kafka", "MovieLens"),
    ),
    "online_throughput": Benchmark(
        "training samples/s from Kafka by those from memory",
        "--rounds 2",
        "--batch 128 --steps 4 --rounds 1 --hidden 16",
        ("Kafka",),
    ),
    "precision_accuracy": Benchmark(
        "AUC with two bytes per number in training, and 8 or 4 bits in serving, beside the AUC "
        "with float32 (half an hour)",
        "--sets movielens synthetic census --movielens {movielens}",
        "--sets synthetic --rows 5000 --models dlrm --seeds 0",
        ("MovieLens", "Census-Income"),
    ),
    "quantised_lookup": Benchmark(
        "pooled lookups/s of rows of int8 and int4, bytes a row; beside FBGEMM's CPU kernels",
        "--dims 64 --bits 8 --bytes 1073741824 --rounds 40",
        "--bytes 262144 --dims 16 --bags 8 --batches 2 --rounds 2",
    ),
    "read_parquet": Benchmark(
        "rows/s of `mindspore_rec.data` beside pyarrow's scan and the packed format; its memory",
        "--rows 1000000 --rounds 5 --bytes 2e9",
        "--rows 20000 --rounds 1 --bytes 1e7",
        codes=(0, 1),  # 1: slower than promised
    ),
    "redis_tier": Benchmark(
        "rows/s and CPU a row of the tier on Redis, beside redis-py's own commands",
        "--batches 50",
        "--rows 6000 --batch 1000 --batches 5",
        ("Redis",),
    ),
    "sequence_step": Benchmark(
        "a training step of DIN, SASRec's and HSTU's block over histories, beside PyTorch",
        "--rounds 10",
        "--lengths 5 --batch 16 --rounds 1 --long 50",
    ),
    "serving_clients": Benchmark(
        "requests/s that the server answers in 10 ms, by JSON, bytes and gRPC, by candidates",
        "--keys 200000 --seconds 0.7 --steps 6 --candidates 1,32",
        "--keys 2000 --batch 64 --hidden 16 --candidates 2 --seconds 0.3 --steps 2 --connections 8",
    ),
    "serving_kills": Benchmark(
        "requests that fail while workers, the writer and the training are killed, kill -9",
        "--seconds 60 --every 5",
        "--keys 2000 --batch 32 --seconds 3 --every 1 --rate 20",
    ),
    "serving_load": Benchmark(
        "latency of the HTTP server while deltas arrive by that in quiet",
        "--keys 200000 --seconds 8 --rounds 2",
        "--keys 2000 --batch 64 --seconds 2 --rounds 1 --rate 20",
    ),
    "serving_start": Benchmark(
        "seconds until a server answers from a large checkpoint, over seconds of reading its files",
        "--keys 4000000 --directory {disk}",
        "--keys 2000 --rounds 1 --hidden 16",
    ),
    "shared_rows": Benchmark(
        "lookups in rows that processes share while deltas of 100,000 rows come; memory of all",
        "--gigabytes 2 --readers 4",
        "--gigabytes 0.01 --readers 2 --delta-rows 2000 --seconds 1 --rounds 1",
    ),
    "sketch_accuracy": Benchmark(
        "share of keys that a sketch admits too early, by its bytes a key",
        "",
        "--keys 5000 --thresholds 2",
    ),
    "soak": Benchmark(
        "same bits and flat memory of a long training with all tiers and policies",
        "--seconds 40 --ssd-path {disk}",
        "--seconds 6 --ssd-path {disk} --most-growth-mib 256",
        ("Redis",),
    ),
    "ssd_tier": Benchmark(
        "rows/s of the SSD tier: fill, reads, scans, overwrites, recovery; fio and RocksDB beside",
        "--rows 2000000 --reads 20 --overwrites 2 --dir {disk}",
        "--rows 20000 --batch 1000 --reads 3 --fio-seconds 0 --buffered --dir {disk}",
    ),
    "stream_features": Benchmark(
        "rows/s from Criteo's lines to arrays",
        "--rounds 3",
        "--rows 20000 --batch 4000 --rounds 1",
    ),
    "stream_kafka": Benchmark(
        "rows/s and MB/s from a Kafka broker to batches of arrays",
        "--rows 500000 --lines 50000 --rounds 2",
        "--rows 10000 --lines 2000 --batch 1000 --rounds 1",
        ("Kafka",),
    ),
    "two_hosts": Benchmark(
        "step of two hosts over links of 10 and 1 Gbit/s beside bytes over bandwidth",
        "--rounds 7",
        "--models wide_deep_128 --batch 64 --rows 2600 --rounds 1 --steps 2",
        ("Open MPI", "root"),
    ),
    "wide_deep_step": Benchmark(
        "training samples/s of Wide & Deep beside MindSpore's own cells; parts of the step beside "
        "bare products and tables",
        "--rows 2000000 --rounds 8 --precision float32,bfloat16",
        "--batch 32 --rows 4000 --rounds 2 --shape criteo_26",
    ),
}


def path_of(name: str) -> str:
    """Return the path of a benchmark's script, relative to the repository's root."""
    return SUITE[name].path or f"benchmarks/{name}.py"


def lacking(need: str) -> str:
    """Return the reason why a benchmark's requirement is not met, or "" if it is met."""
    if need == "Kafka":
        from examples.online_learning.kafka.broker import missing_tools

        return missing_tools()
    if need == "Redis":
        return "" if shutil.which("redis-server") else "redis-server is not in the path"
    if need == "MovieLens":
        directory = os.environ.get(MOVIELENS, "")
        names = ("ratings.csv", "ratings.csv.gz")
        if directory and any(Path(directory, name).exists() for name in names):
            return ""
        return (
            f"{MOVIELENS} does not name a directory with ratings.csv and movies.csv; "
            "`python -m datasets.movielens.download DIRECTORY` fetches them"
        )
    if need == "Census-Income":
        if CENSUS in os.environ and Path(os.environ[CENSUS]).is_dir():
            return ""
        return f"{CENSUS} does not name the directory of Census-Income's files"
    if need == "Open MPI":
        here = Path(sys.prefix, "bin", "mpirun").exists()
        return "" if here else f"mpirun is missing: {pip_install('mpi')}"
    if need == "NVIDIA GPU":
        return "" if ctypes.util.find_library("cuda") else "there is no CUDA driver"
    if need == "root":
        from network_hosts import missing

        return str(missing())
    module = {"scikit-learn": "sklearn"}.get(need, need)
    return "" if importlib.util.find_spec(module) else f"{need} is not installed"
