"""Two gloo processes with `fully_shard` (FSDP2): our groups, BERTAdam and freezing on sharded parameters.

`python -m torch.distributed.run --nproc_per_node 2 sharded.py OUT` writes the whole weights after six steps.
"""

import os
import sys

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from hf_ftstrategies import LayerMap
from hf_ftstrategies.optim.bert_adam import BertAdam
from hf_ftstrategies.optim.groups import build_groups, check_complete
from hf_ftstrategies.strategies import LayerwiseLearningRate
from tests.tiny import rows, tiny_bert

BATCH = 8


def train(shard: bool) -> dict[str, torch.Tensor]:
    """Six steps of 8 rows; the two lower depths are frozen in the first three."""
    model = tiny_bert(dropout=0.0)
    rank, size = (dist.get_rank(), dist.get_world_size()) if shard else (0, 1)
    if shard:
        for layer in model.bert.encoder.layer:
            fully_shard(layer)
        fully_shard(model)
    layer_map = LayerMap.from_model(model)
    decay = {name for name, parameter in model.named_parameters() if parameter.dim() > 1}
    groups = build_groups(layer_map, decay, 1e-2, 0.1)
    LayerwiseLearningRate(0.8).adjust_groups(groups, layer_map)
    check_complete(groups, model)
    optimizer = BertAdam([group.for_optimizer() for group in groups])
    data = rows(BATCH * 6)
    for step in range(6):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(step >= 3 or layer_map.depth_of(name) > 1)
        mine = data[BATCH * step : BATCH * (step + 1)][rank::size]
        ids, labels = torch.stack([row["input_ids"] for row in mine]), torch.tensor([row["labels"] for row in mine])
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in model.named_parameters()}
    return {name: weight.detach().contiguous() for name, weight in weights.items()}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    sharded = train(shard=True)
    if os.environ["RANK"] == "0":
        save_file(sharded, sys.argv[1])
    dist.destroy_process_group()
