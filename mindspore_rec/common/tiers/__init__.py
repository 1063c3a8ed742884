# SPDX-License-Identifier: Apache-2.0
"""Tiers of a table below its rows in host memory: their configuration, Redis, the SSD directory."""
