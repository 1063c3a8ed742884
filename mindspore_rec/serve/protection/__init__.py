# SPDX-License-Identifier: Apache-2.0
"""Protection of a server: tokens, TLS, limits of what clients may do, metrics, the access log."""
