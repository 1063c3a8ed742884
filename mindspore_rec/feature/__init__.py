# SPDX-License-Identifier: Apache-2.0
"""Features: from raw columns to the int64 keys, specs and lookups a table takes."""
