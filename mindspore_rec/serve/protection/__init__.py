# SPDX-License-Identifier: Apache-2.0
"""Protection of a server: tokens, TLS, limits for clients, metrics, the access log."""
