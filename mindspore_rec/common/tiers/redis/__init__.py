# SPDX-License-Identifier: Apache-2.0
"""The tier on Redis: `tier` over `client`, `nodes` and `link`; `wire` packs, `marker` marks."""
