# SPDX-License-Identifier: Apache-2.0
"""Operators over histories: values of all lists one after the other, and offsets of the lists."""
