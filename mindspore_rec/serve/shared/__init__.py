# SPDX-License-Identifier: Apache-2.0
"""Rows in shared memory, and the processes of a server with `--workers`."""
