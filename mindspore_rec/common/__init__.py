# SPDX-License-Identifier: Apache-2.0
"""Modules that training and serving share. No module of `common` needs MindSpore."""
