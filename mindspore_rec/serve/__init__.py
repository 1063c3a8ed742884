# SPDX-License-Identifier: Apache-2.0
"""Predictors and a server for predictors; this package does not need MindSpore."""
