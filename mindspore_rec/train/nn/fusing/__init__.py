# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a network as a list of steps, and the steps that one operator computes."""
