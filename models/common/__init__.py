# SPDX-License-Identifier: Apache-2.0
"""Everything that all models share: configuration, data, embeddings, training, commands."""
