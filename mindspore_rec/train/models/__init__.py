# SPDX-License-Identifier: Apache-2.0
"""Networks that are made from a schema, the cells of their inputs, and the registry of models."""
