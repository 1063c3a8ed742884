# SPDX-License-Identifier: Apache-2.0
"""Raw columns to arrays: schema, hashing, transforms, the one feature stage."""
