# SPDX-License-Identifier: Apache-2.0
"""A feature worker for the test that kills it: brokers, raw topic, channel, state file."""

from __future__ import annotations

import sys

import pyarrow as pa

from mindspore_rec.stream import (
    Category,
    DataSender,
    FeaturePipeline,
    FeatureWorker,
    KafkaSource,
    MinMaxScale,
    StopWhen,
    StreamingDataset,
    StreamLimits,
)

SCHEMA = pa.schema({"user": pa.string(), "price": pa.float64(), "row": pa.float32()})

if __name__ == "__main__":
    brokers, topic, channel, state = sys.argv[1:]
    source = KafkaSource(
        brokers, topic, SCHEMA, format="tsv", batch_size=50,
        limits=StreamLimits(turn_messages=16),
        dead_letters=topic + ".dead", event_time="row", stop=StopWhen(watermark=19_999),
    )  # fmt: skip
    pipeline = FeaturePipeline(
        {
            "ids": Category("user"),
            "dense": [MinMaxScale("price")],
            "label": MinMaxScale("row", 0, 1e6),
        }
    )
    sender = DataSender(
        brokers, num_shards=2, dataset_name=channel, message_rows=20, sender_name="worker"
    )
    worker = FeatureWorker(StreamingDataset(source, pipeline), sender, state, save_seconds=0.1)
    worker.run()
    sender.close()
