# SPDX-License-Identifier: Apache-2.0
"""Predictors and their server; nothing here needs MindSpore."""
