# SPDX-License-Identifier: Apache-2.0
"""Optimizers that train dense parameters and tables together."""
