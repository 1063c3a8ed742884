# SPDX-License-Identifier: Apache-2.0
"""Metrics for MindSpore's `Model`, and the summary of a training."""
