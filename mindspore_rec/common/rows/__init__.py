# SPDX-License-Identifier: Apache-2.0
"""Rows of tables outside a network: rules, bytes, what a predictor looks up."""
