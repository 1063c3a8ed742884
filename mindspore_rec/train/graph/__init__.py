# SPDX-License-Identifier: Apache-2.0
"""Calls of MindSpore cells, the lock of these calls, and operators of the native core."""
