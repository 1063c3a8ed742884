# SPDX-License-Identifier: Apache-2.0
"""Rows in Criteo's format from a planted model: the true click probability of each row is known."""

from datasets.synthetic.bayes import BayesAUC, bayes_auc
from datasets.synthetic.config import CategoryField, PlantedConfig, criteo_like
from datasets.synthetic.generate import generate
from datasets.synthetic.planted import PlantedModel

__all__ = [
    "BayesAUC",
    "CategoryField",
    "PlantedConfig",
    "PlantedModel",
    "bayes_auc",
    "criteo_like",
    "generate",
]
