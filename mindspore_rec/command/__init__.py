# SPDX-License-Identifier: Apache-2.0
"""The command `mindspore-rec`: train, evaluate, predict, explain, tune and serve from one YAML."""
