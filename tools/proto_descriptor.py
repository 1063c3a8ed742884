# SPDX-License-Identifier: Apache-2.0
"""Write open_inference.proto's descriptor to mindspore_rec/serve/protocol/open_inference.py.

    pip install grpcio-tools && python tools/proto_descriptor.py

Code that protoc generates runs only with similar versions of protobuf. Generated code also
registers its messages in protobuf's shared pool, where other packages, such as Triton's client,
register messages of the same names. A descriptor without generated code avoids both problems.
"""

from __future__ import annotations

import argparse
import base64
import subprocess
import sys
import tempfile
import textwrap
import zlib
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "mindspore_rec" / "serve" / "protocol"
BEGIN = '_DESCRIPTOR = """\n'
END = '"""  # by tools/proto_descriptor.py\n'


def main() -> None:
    """Replace the descriptor in open_inference.py."""
    argparse.ArgumentParser(
        description="Write the compiled open_inference.proto into open_inference.py."
    ).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / "set"
        options = [f"-I{FOLDER}", f"--descriptor_set_out={made}", "open_inference.proto"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options], check=True)
        text = base64.b85encode(zlib.compress(made.read_bytes(), 9)).decode()
    path = FOLDER / "open_inference.py"
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    lines = "\n".join(textwrap.wrap(text, 96, break_on_hyphens=False))
    path.write_text(before + BEGIN + lines + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
