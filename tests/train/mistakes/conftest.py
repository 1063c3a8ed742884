# SPDX-License-Identifier: Apache-2.0
"""The programs are run by a test, and are none."""

collect_ignore = ["programs", "shop.py", "run_programs.py"]
