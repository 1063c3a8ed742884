# SPDX-License-Identifier: Apache-2.0
"""Models, each a folder with network, configurations, training and a README with results."""
