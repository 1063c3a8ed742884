# SPDX-License-Identifier: Apache-2.0
"""Rows of tables outside a network: policies, bytes, quantised rows and served tables."""
