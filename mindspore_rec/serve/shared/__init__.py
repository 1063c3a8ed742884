# SPDX-License-Identifier: Apache-2.0
"""Rows that one process writes to shared memory and other processes read, as with `--workers`."""
