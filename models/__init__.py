# SPDX-License-Identifier: Apache-2.0
"""Models: each folder has a network, configurations, training and a README with results."""
