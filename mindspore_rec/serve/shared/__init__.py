# SPDX-License-Identifier: Apache-2.0
"""Rows that one process writes and others read, and the processes of `--workers`."""
