# SPDX-License-Identifier: Apache-2.0
"""What the models' commands share: configuration, data, options, the training run."""
