# SPDX-License-Identifier: Apache-2.0
"""Operators over histories; a batch of histories is one array of values, with offsets."""
