# SPDX-License-Identifier: Apache-2.0
"""Wide & Deep with TensorFlow Recommenders Addons' dynamic embeddings, as a worker.

Ids are 63-bit keys. The whole step is one `tf.function`. Keras' Adam trains the dense network and,
through the addons' wrapper, the tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # the addons' optimizers are Keras 2's
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons as tfra
from serve import Work, serve
from tensorflow_recommenders_addons import dynamic_embedding as de

RATE = 1e-3
CHUNK = 500_000


class Training:
    """Tables, network and optimizer."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.deep = self.embedding("deep", work.dim)
        self.wide = self.embedding("wide", 1)
        self.bfloat16 = work.precision == "bfloat16"
        policy = "mixed_bfloat16" if self.bfloat16 else "float32"
        hidden = [tf.keras.layers.Dense(u, "relu", dtype=policy) for u in work.hidden]
        self.layers = tf.keras.Sequential([*hidden, tf.keras.layers.Dense(1, dtype=policy)])
        self.layers.build((None, work.fields * work.dim + work.columns))
        adam = tf.keras.optimizers.legacy.Adam(RATE)
        self.optimizer = de.DynamicEmbeddingOptimizer(adam)
        self.ids = [tf.constant(each) for each in work.keys]
        self.dense = tf.constant(work.dense)
        self.label = tf.constant(work.label)
        self.compiled = tf.function(self.train)

    def embedding(self, name: str, dim: int) -> Any:
        """Return a lookup in a table that already contains all rows."""
        rng = np.random.default_rng(0)
        first = tf.keras.initializers.RandomNormal(stddev=0.01)
        layer = de.keras.layers.Embedding(
            dim, initializer=first, name=name, init_capacity=self.work.rows
        )
        for begin in range(0, self.work.rows, CHUNK):
            keys = self.work.every[begin : begin + CHUNK]
            values = rng.standard_normal((len(keys), dim)).astype(np.float32) * np.float32(0.01)
            layer.params.upsert(tf.constant(keys), tf.constant(values))
        return layer

    def loss(self, ids: Any, dense: Any, label: Any) -> Any:
        """ids [B, F], dense [B, N], label [B, 1] -> loss."""
        deep = tf.reshape(self.deep(ids), (-1, self.work.fields * self.work.dim))
        wide = tf.reduce_sum(self.wide(ids), 1)
        logit = tf.cast(self.layers(tf.concat((deep, dense), 1)), tf.float32) + wide
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logit))

    def train(self, ids: Any, dense: Any, label: Any) -> Any:
        """Run a step; return the loss."""
        with tf.GradientTape() as tape:
            loss = self.loss(ids, dense, label)
        weights = [
            *self.layers.trainable_variables,
            *self.deep.trainable_variables,
            *self.wide.trainable_variables,
        ]
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return loss

    def step(self, k: int) -> float:
        """Run a step on batch k; return the loss."""
        return float(self.compiled(self.ids[k], self.dense, self.label))


def make(work: Work) -> tuple[dict[str, str], Callable[[int], float]]:
    """Return versions and step."""
    tf.config.threading.set_intra_op_parallelism_threads(work.threads)
    tf.config.threading.set_inter_op_parallelism_threads(work.threads)
    tf.random.set_seed(0)
    training = Training(work)
    training.step(0)
    return {"tensorflow": tf.__version__, "tfra": tfra.__version__}, training.step


if __name__ == "__main__":
    serve(make)
