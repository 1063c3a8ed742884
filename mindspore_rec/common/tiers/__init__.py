# SPDX-License-Identifier: Apache-2.0
"""Tiers of a table below host memory: configuration, Redis and the SSD directory."""
