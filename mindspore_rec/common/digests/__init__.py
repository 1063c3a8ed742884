# SPDX-License-Identifier: Apache-2.0
"""Digests of rows: their arithmetic, the digests of a state, and the loop of all scrubbers."""
