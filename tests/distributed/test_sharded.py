import os
import subprocess
import sys

import torch
from safetensors.torch import load_file

from tests.distributed import sharded
from tests.distributed.test_two_processes import ROOT


def test_groups_bert_adam_and_freezing_work_on_sharded_parameters(tmp_path):
    out = tmp_path / "weights.safetensors"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, sharded.__file__, out], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    torch.testing.assert_close(load_file(out), sharded.train(shard=False), rtol=0, atol=1e-5)
