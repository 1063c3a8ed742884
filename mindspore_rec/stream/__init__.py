# SPDX-License-Identifier: Apache-2.0
"""Streams: batches from Kafka that are the same after every restart, and features on them.

`KafkaSource` and `StreamingDataset` read batches and save their place; `FeaturePipeline` makes
columns of features; `FeatureWorker`, `DataSender` and `DataReceiver` hand batches from process to
process; `Announcer` and `AnnouncementReader` spread the news of checkpoints.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.columns.arrow_columns import to_arrays, to_record_batch
    from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
    from mindspore_rec.common.columns.quantiles import QuantileBucket, QuantileScale
    from mindspore_rec.common.columns.scaling import LogScale, MinMaxScale, StandardScale
    from mindspore_rec.common.columns.transforms import (
        Category,
        Feature,
        Key,
        Number,
        TimeCycle,
        TimePart,
    )
    from mindspore_rec.common.stream.announcements import AnnouncementReader, Announcer
    from mindspore_rec.common.stream.batches import Batch, BatchSource, BatchWrapper
    from mindspore_rec.common.stream.channel import DataReceiver, DataSender
    from mindspore_rec.common.stream.client import LogClient, LogProducer, Message
    from mindspore_rec.common.stream.dataset import StreamingDataset
    from mindspore_rec.common.stream.dead_letters import DeadLetters
    from mindspore_rec.common.stream.dead_share import TooManyDeadLettersError
    from mindspore_rec.common.stream.formats import (
        ArrowFormat,
        BadMessageError,
        Format,
        JsonFormat,
        TsvFormat,
        pack,
    )
    from mindspore_rec.common.stream.journal import Journal
    from mindspore_rec.common.stream.kafka_base import ensure_topic
    from mindspore_rec.common.stream.kafka_client import KafkaClient
    from mindspore_rec.common.stream.kafka_source import KafkaSource
    from mindspore_rec.common.stream.kafka_writer import KafkaWriter
    from mindspore_rec.common.stream.memory import MemoryTopic
    from mindspore_rec.common.stream.source import StreamSource
    from mindspore_rec.common.stream.stop import StopWhen
    from mindspore_rec.common.stream.worker import FeatureWorker
    from mindspore_rec.train.data.batch_sources import batch_source
    from mindspore_rec.train.data.worker_split import split_by_worker
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "mindspore_rec.common.columns.arrow_columns": ["to_arrays", "to_record_batch"],
            "mindspore_rec.common.columns.feature_pipeline": ["FeaturePipeline"],
            "mindspore_rec.common.columns.quantiles": ["QuantileBucket", "QuantileScale"],
            "mindspore_rec.common.columns.scaling": ["LogScale", "MinMaxScale", "StandardScale"],
            "mindspore_rec.common.columns.transforms": [
                "Category",
                "Feature",
                "Key",
                "Number",
                "TimeCycle",
                "TimePart",
            ],
            "mindspore_rec.common.stream.announcements": ["AnnouncementReader", "Announcer"],
            "mindspore_rec.train.data.batch_sources": ["batch_source"],
            "mindspore_rec.common.stream.batches": ["Batch", "BatchSource", "BatchWrapper"],
            "mindspore_rec.common.stream.channel": ["DataReceiver", "DataSender"],
            "mindspore_rec.common.stream.client": ["LogClient", "LogProducer", "Message"],
            "mindspore_rec.common.stream.dataset": ["StreamingDataset"],
            "mindspore_rec.common.stream.dead_letters": ["DeadLetters"],
            "mindspore_rec.common.stream.dead_share": ["TooManyDeadLettersError"],
            "mindspore_rec.common.stream.formats": [
                "ArrowFormat",
                "BadMessageError",
                "Format",
                "JsonFormat",
                "TsvFormat",
                "pack",
            ],
            "mindspore_rec.common.stream.journal": ["Journal"],
            "mindspore_rec.common.stream.kafka_base": ["ensure_topic"],
            "mindspore_rec.common.stream.kafka_client": ["KafkaClient"],
            "mindspore_rec.common.stream.kafka_source": ["KafkaSource"],
            "mindspore_rec.common.stream.kafka_writer": ["KafkaWriter"],
            "mindspore_rec.common.stream.memory": ["MemoryTopic"],
            "mindspore_rec.common.stream.source": ["StreamSource"],
            "mindspore_rec.common.stream.stop": ["StopWhen"],
            "mindspore_rec.common.stream.worker": ["FeatureWorker"],
            "mindspore_rec.train.data.worker_split": ["split_by_worker"],
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
