# SPDX-License-Identifier: Apache-2.0
"""Batches for a network: data set adapters, features and checks."""
