# SPDX-License-Identifier: Apache-2.0
"""Lists the steps of a network's forward pass, and chooses the steps that one operator computes."""
