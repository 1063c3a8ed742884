# SPDX-License-Identifier: Apache-2.0
"""Multi-gate mixture of experts (Ma et al., 2018)."""
