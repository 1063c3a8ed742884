# SPDX-License-Identifier: Apache-2.0
"""Deep & Cross Network (Wang et al., 2017)."""
