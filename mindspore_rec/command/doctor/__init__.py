# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec doctor`: the state of this machine's libraries and devices, with remedies."""
