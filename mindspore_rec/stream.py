# SPDX-License-Identifier: Apache-2.0
"""Streams: reproducible batches from Kafka, their features, and messages about checkpoints.

`KafkaSource` and `StreamingDataset` read batches and save the position in the stream.
`FeaturePipeline` converts raw columns to features. `FeatureWorker`, `DataSender` and `DataReceiver`
pass batches between processes. `Announcer` sends messages about new checkpoints, and
`AnnouncementReader` reads these messages.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.columns.arrow_columns import (
        to_arrays as to_arrays,
        to_record_batch as to_record_batch,
    )
    from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline as FeaturePipeline
    from mindspore_rec.common.columns.quantiles import (
        MixedScale as MixedScale,
        QuantileBucket as QuantileBucket,
        QuantileScale as QuantileScale,
    )
    from mindspore_rec.common.columns.scaling import (
        LogScale as LogScale,
        MinMaxScale as MinMaxScale,
        StandardScale as StandardScale,
    )
    from mindspore_rec.common.columns.transforms import (
        Category as Category,
        Feature as Feature,
        Key as Key,
        Number as Number,
        TimeCycle as TimeCycle,
        TimePart as TimePart,
    )
    from mindspore_rec.common.stream.announcements import (
        AnnouncementReader as AnnouncementReader,
        Announcer as Announcer,
    )
    from mindspore_rec.common.stream.batches import (
        Batch as Batch,
        BatchSource as BatchSource,
        BatchWrapper as BatchWrapper,
    )
    from mindspore_rec.common.stream.channel import (
        DataReceiver as DataReceiver,
        DataSender as DataSender,
    )
    from mindspore_rec.common.stream.claims import ReplacedError as ReplacedError
    from mindspore_rec.common.stream.client import (
        LogClient as LogClient,
        LogProducer as LogProducer,
        Message as Message,
    )
    from mindspore_rec.common.stream.dataset import StreamingDataset as StreamingDataset
    from mindspore_rec.common.stream.dead_letter_policy import DeadLetterPolicy as DeadLetterPolicy
    from mindspore_rec.common.stream.dead_letters import DeadLetters as DeadLetters
    from mindspore_rec.common.stream.dead_share import (
        TooManyDeadLettersError as TooManyDeadLettersError,
    )
    from mindspore_rec.common.stream.formats import (
        ArrowFormat as ArrowFormat,
        BadMessageError as BadMessageError,
        Format as Format,
        JsonFormat as JsonFormat,
        TsvFormat as TsvFormat,
        pack as pack,
    )
    from mindspore_rec.common.stream.journal import Journal as Journal
    from mindspore_rec.common.stream.kafka_base import ensure_topic as ensure_topic
    from mindspore_rec.common.stream.kafka_client import KafkaClient as KafkaClient
    from mindspore_rec.common.stream.kafka_source import KafkaSource as KafkaSource
    from mindspore_rec.common.stream.kafka_writer import KafkaWriter as KafkaWriter
    from mindspore_rec.common.stream.limits import StreamLimits as StreamLimits
    from mindspore_rec.common.stream.memory import MemoryTopic as MemoryTopic
    from mindspore_rec.common.stream.source import StreamSource as StreamSource
    from mindspore_rec.common.stream.stop import StopWhen as StopWhen
    from mindspore_rec.common.stream.worker import FeatureWorker as FeatureWorker
    from mindspore_rec.train.data.batch_sources import batch_source as batch_source
    from mindspore_rec.train.data.worker_split import split_by_worker as split_by_worker
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
