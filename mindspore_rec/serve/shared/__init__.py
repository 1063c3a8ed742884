# SPDX-License-Identifier: Apache-2.0
"""Rows that one process writes to shared memory and others read; the processes of `--workers`."""
