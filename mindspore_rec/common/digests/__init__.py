# SPDX-License-Identifier: Apache-2.0
"""Digests of rows and of states, and the loop that all scrubbers share."""
