# SPDX-License-Identifier: Apache-2.0
"""`Predictor`, which finds, checks and applies the checkpoints of a training in progress."""
