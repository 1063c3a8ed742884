# SPDX-License-Identifier: Apache-2.0
"""The format of a run: manifest, chain, tables, digests, verify, merge."""
