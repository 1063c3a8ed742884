# SPDX-License-Identifier: Apache-2.0
"""Readers: rows of files and data frames as Arrow batches, in bounded memory."""
