# SPDX-License-Identifier: Apache-2.0
"""`Predictor`, and how it finds, checks and applies the checkpoints of a run that goes on."""
