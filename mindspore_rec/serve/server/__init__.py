# SPDX-License-Identifier: Apache-2.0
"""The server process: its models, the batcher in front of each, HTTP and gRPC."""
