# SPDX-License-Identifier: Apache-2.0
"""Rows that one process writes and other processes read, and the processes for `--workers`."""
