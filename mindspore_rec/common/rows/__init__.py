# SPDX-License-Identifier: Apache-2.0
"""Code for table rows that needs no network: policies, bytes, quantised rows and served tables."""
