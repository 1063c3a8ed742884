# SPDX-License-Identifier: Apache-2.0
"""Wide & Deep (Cheng et al., 2016)."""
