# SPDX-License-Identifier: Apache-2.0
"""Metrics of arrays that merge over batches and workers."""
