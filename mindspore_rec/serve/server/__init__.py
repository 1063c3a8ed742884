# SPDX-License-Identifier: Apache-2.0
"""The server process: models, a batcher for each model, HTTP and gRPC."""
