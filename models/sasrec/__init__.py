# SPDX-License-Identifier: Apache-2.0
"""SASRec, self-attentive sequential recommendation (Kang & McAuley, 2018)."""
