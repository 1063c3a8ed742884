# SPDX-License-Identifier: Apache-2.0
"""Streams: batches from Kafka that are the same after every restart, and features on them.

`KafkaSource` and `StreamingDataset` read batches and save their place; `FeaturePipeline` makes
columns of features; `FeatureWorker`, `DataSender` and `DataReceiver` hand batches from process to
process; `Announcer` and `AnnouncementReader` spread the news of checkpoints.
"""

from typing import TYPE_CHECKING

from mindspore_rec.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.feature.arrow_columns import to_arrays, to_record_batch
    from mindspore_rec.feature.feature_pipeline import FeaturePipeline
    from mindspore_rec.feature.quantiles import QuantileBucket, QuantileScale
    from mindspore_rec.feature.scaling import LogScale, MinMaxScale, StandardScale
    from mindspore_rec.feature.transforms import Category, Feature, Key, Number, TimeCycle, TimePart
    from mindspore_rec.stream.announcements import AnnouncementReader, Announcer
    from mindspore_rec.stream.batch_sources import batch_source
    from mindspore_rec.stream.batches import Batch, BatchSource, BatchWrapper
    from mindspore_rec.stream.channel import DataReceiver, DataSender
    from mindspore_rec.stream.client import LogClient, LogProducer, Message
    from mindspore_rec.stream.dataset import StreamingDataset
    from mindspore_rec.stream.dead_letters import DeadLetters
    from mindspore_rec.stream.dead_share import TooManyDeadLettersError
    from mindspore_rec.stream.formats import (
        ArrowFormat,
        BadMessageError,
        Format,
        JsonFormat,
        TsvFormat,
        pack,
    )
    from mindspore_rec.stream.journal import Journal
    from mindspore_rec.stream.kafka_base import ensure_topic
    from mindspore_rec.stream.kafka_client import KafkaClient
    from mindspore_rec.stream.kafka_source import KafkaSource
    from mindspore_rec.stream.kafka_writer import KafkaWriter
    from mindspore_rec.stream.memory import MemoryTopic
    from mindspore_rec.stream.source import StreamSource
    from mindspore_rec.stream.stop import StopWhen
    from mindspore_rec.stream.worker import FeatureWorker
    from mindspore_rec.stream.worker_split import split_by_worker
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "mindspore_rec.feature.arrow_columns": ["to_arrays", "to_record_batch"],
            "mindspore_rec.feature.feature_pipeline": ["FeaturePipeline"],
            "mindspore_rec.feature.quantiles": ["QuantileBucket", "QuantileScale"],
            "mindspore_rec.feature.scaling": ["LogScale", "MinMaxScale", "StandardScale"],
            "mindspore_rec.feature.transforms": [
                "Category",
                "Feature",
                "Key",
                "Number",
                "TimeCycle",
                "TimePart",
            ],
            "mindspore_rec.stream.announcements": ["AnnouncementReader", "Announcer"],
            "mindspore_rec.stream.batch_sources": ["batch_source"],
            "mindspore_rec.stream.batches": ["Batch", "BatchSource", "BatchWrapper"],
            "mindspore_rec.stream.channel": ["DataReceiver", "DataSender"],
            "mindspore_rec.stream.client": ["LogClient", "LogProducer", "Message"],
            "mindspore_rec.stream.dataset": ["StreamingDataset"],
            "mindspore_rec.stream.dead_letters": ["DeadLetters"],
            "mindspore_rec.stream.dead_share": ["TooManyDeadLettersError"],
            "mindspore_rec.stream.formats": [
                "ArrowFormat",
                "BadMessageError",
                "Format",
                "JsonFormat",
                "TsvFormat",
                "pack",
            ],
            "mindspore_rec.stream.journal": ["Journal"],
            "mindspore_rec.stream.kafka_base": ["ensure_topic"],
            "mindspore_rec.stream.kafka_client": ["KafkaClient"],
            "mindspore_rec.stream.kafka_source": ["KafkaSource"],
            "mindspore_rec.stream.kafka_writer": ["KafkaWriter"],
            "mindspore_rec.stream.memory": ["MemoryTopic"],
            "mindspore_rec.stream.source": ["StreamSource"],
            "mindspore_rec.stream.stop": ["StopWhen"],
            "mindspore_rec.stream.worker": ["FeatureWorker"],
            "mindspore_rec.stream.worker_split": ["split_by_worker"],
        },
    )

__all__ = [
    "AnnouncementReader",
    "Announcer",
    "ArrowFormat",
    "BadMessageError",
    "Batch",
    "BatchSource",
    "BatchWrapper",
    "Category",
    "DataReceiver",
    "DataSender",
    "DeadLetters",
    "Feature",
    "FeaturePipeline",
    "FeatureWorker",
    "Format",
    "Journal",
    "JsonFormat",
    "KafkaClient",
    "KafkaSource",
    "KafkaWriter",
    "Key",
    "LogClient",
    "LogProducer",
    "LogScale",
    "MemoryTopic",
    "Message",
    "MinMaxScale",
    "Number",
    "QuantileBucket",
    "QuantileScale",
    "StandardScale",
    "StopWhen",
    "StreamSource",
    "StreamingDataset",
    "TimeCycle",
    "TimePart",
    "TooManyDeadLettersError",
    "TsvFormat",
    "batch_source",
    "ensure_topic",
    "pack",
    "split_by_worker",
    "to_arrays",
    "to_record_batch",
]
