# SPDX-License-Identifier: Apache-2.0
"""Rows of tables outside a network: rules, digests, bytes, what a predictor looks up."""
