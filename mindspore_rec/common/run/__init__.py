# SPDX-License-Identifier: Apache-2.0
"""Format of a run's checkpoints: manifest, chain, tables, digests, verify and merge."""
