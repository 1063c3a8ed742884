# SPDX-License-Identifier: Apache-2.0
"""Metrics that can be merged over batches and workers."""
