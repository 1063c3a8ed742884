# SPDX-License-Identifier: Apache-2.0
"""The code that all models share: configuration, data, embeddings, training, commands."""
