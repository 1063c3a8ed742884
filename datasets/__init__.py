# SPDX-License-Identifier: Apache-2.0
"""Public data sets and a synthetic set, as whole-batch columns: ids, dense, label."""
