# SPDX-License-Identifier: Apache-2.0
"""Convert raw columns to arrays: schema, hashing, transforms and the feature pipeline."""
