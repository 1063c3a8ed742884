# SPDX-License-Identifier: Apache-2.0
"""A predictor is made without a word of MindSpore's on what is deprecated."""

from __future__ import annotations

from tests.support.processes import run_program

MADE = """
import mindspore as ms
from mindspore import Tensor, nn
from mindspore_rec.train.graph.network_inputs import dynamic_tensor, input_specs
from mindspore_rec.common.columns.tensors import DATATYPES, TensorSpec
class Net(nn.Cell):
    def construct(self, x):
        return x
for name in DATATYPES:
    spec = TensorSpec("x", name, (-1, 2))
    net = Net()
    net.set_inputs(dynamic_tensor(spec))
    assert input_specs(net, None) == (spec,), name
net.set_inputs(Tensor(shape=[None], dtype=ms.bfloat16))
try:
    input_specs(net, None)
except TypeError as error:
    print(error)
"""


def test_specs_and_tensors_say_nothing(tmp_path):
    done = run_program("-c", MADE, cwd=tmp_path, variables={"GLOG_v": "2"})
    assert done.returncode == 0, done.stderr
    assert "must be one of" in done.stdout and "BFloat16" in done.stdout
    assert "deprecated" not in done.stderr
