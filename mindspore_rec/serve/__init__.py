# SPDX-License-Identifier: Apache-2.0
"""Predictors and their server; this package does not need MindSpore."""
