# SPDX-License-Identifier: Apache-2.0
"""DIN, the Deep Interest Network (Zhou et al., 2018)."""
