# SPDX-License-Identifier: Apache-2.0
"""Deep Learning Recommendation Model, DLRM (Naumov et al., 2019)."""
