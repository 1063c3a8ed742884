# SPDX-License-Identifier: Apache-2.0
"""Calls of MindSpore cells, a lock for these calls, operators of the native core, tensors."""
