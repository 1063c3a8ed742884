# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec doctor`: what this machine has, what is used, and what to do about the rest."""
