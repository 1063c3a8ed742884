# SPDX-License-Identifier: Apache-2.0
"""Schema: one description of the columns of a data set, for readers, networks and predictors."""
