# SPDX-License-Identifier: Apache-2.0
"""Batches for a network: adapters of data sets, features, checks."""
