# SPDX-License-Identifier: Apache-2.0
"""Modules that training and serving share. None of these modules needs MindSpore."""
