# SPDX-License-Identifier: Apache-2.0
"""Traces a network's forward pass, and chooses the steps that one operator computes."""
