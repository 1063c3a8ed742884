# SPDX-License-Identifier: Apache-2.0
"""DeepFM (Guo et al., 2017)."""
