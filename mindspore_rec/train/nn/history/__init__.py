# SPDX-License-Identifier: Apache-2.0
"""Operators over histories, which are stored as concatenated lists of values, with offsets."""
