"""Strategies on models that others wrapped or changed: PEFT, torch.compile, activation checkpointing."""

import dataclasses
import re

import peft
import pytest
import torch
from transformers import TrainerCallback

from hf_ftstrategies import LayerMap, StrategyTrainer
from tests.tiny import arguments, equal, rows, snapshot, tiny_bert

pytestmark = [
    # peft.get_peft_model reads the old name
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    # peft before 0.21, saving an adapter of a model that has no name
    pytest.mark.filterwarnings("ignore:Could not find a config file in  - will assume:UserWarning"),
    # the first torch.compile of a process
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is (deprecated|not supported):DeprecationWarning"),
]
HEADS = {"frozen head": {}, "trained head": {"modules_to_save": ["classifier"]}}


class Record(TrainerCallback):
    """Depths that moved in each step, and names of all that moved in any; ends the training after step `stop`."""

    def __init__(self, stop=None):
        self.stop, self.depths, self.names = stop, [], set()

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.map, self.before = LayerMap.from_model(model), snapshot(model)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        before, self.before = self.before, snapshot(model)
        moved = {name for name, weight in self.before.items() if not torch.equal(weight, before[name])}
        self.depths.append({self.map.depth_of(name) for name in moved})
        self.names |= moved
        control.should_training_stop |= state.global_step == self.stop


def lora(head: str, dropout: float = 0.1, target_modules=("word_embeddings", "query", "value"), **kwargs):
    config = peft.LoraConfig(r=2, target_modules=list(target_modules), **HEADS[head], **kwargs)
    torch.manual_seed(1)
    return peft.get_peft_model(tiny_bert(dropout=dropout), config)


def train(folder, model, stop=None, resume=None, **settings):
    record = Record(stop)
    settings = {"num_train_epochs": 5, "weight_decay": 0.1, **settings}
    trainer = StrategyTrainer(model, arguments(folder, **settings), train_dataset=rows(), callbacks=[record])
    trainer.train(resume_from_checkpoint=resume)
    return trainer, record


@pytest.mark.parametrize("head", HEADS)
def test_lora_parameters_get_the_rate_of_their_depth(tmp_path, head):
    model = lora(head)
    trainer = StrategyTrainer(model, arguments(tmp_path, layer_decay=0.5), train_dataset=rows())
    found = {p: group["lr"] for group in trainer.create_optimizer().param_groups for p in group["params"]}
    expected = {}
    for name, parameter in model.named_parameters():
        block = re.search(r"layer\.(\d)\.", name)
        exponent = 2 - int(block[1]) if block else 3 if "embeddings" in name else 0
        if "lora_" in name or "modules_to_save" in name:
            expected[parameter] = 1e-2 * 0.5**exponent
    assert set(expected.values()) == {1e-2, 5e-3, 2.5e-3, 1.25e-3}
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("head", HEADS)
def test_unfreezing_trains_lora_and_never_the_base(tmp_path, head):
    model = lora(head)
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    _, record = train(tmp_path, model, unfreezing="gradual", unfreeze_every="6")
    if head == "trained head":
        expected = [{4}, {3, 4}, {2, 3, 4}, {1, 2, 3, 4}, {0, 1, 2, 3, 4}]
    else:  # no phase for the head alone, in which nothing would train
        expected = [{3}, {2, 3}, {1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}]
    assert record.depths == [depths for depths in expected for _ in range(6)]
    assert record.names == trainable
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == trainable


def test_a_phase_in_which_nothing_trains_is_left_out_or_refused(tmp_path):
    model = lora("frozen head", target_modules=["query"])
    trainer = StrategyTrainer(
        model, arguments(tmp_path, unfreezing="chain_thaw", unfreeze_every="1"), train_dataset=rows()
    )
    assert [phase["name"] for phase in trainer.plan().phases] == ["block 1", "block 2", "block 3", "all"]
    with pytest.raises(ValueError, match="unfreezing='head': phase 'head' trains nothing"):
        train(tmp_path, model, unfreezing="head")
    (tmp_path / "schedule.yaml").write_text("phases: [{train: embeddings, until: {epoch: 1}}, {train: all}]")
    with pytest.raises(ValueError, match="phase 'embeddings' trains nothing"):
        train(tmp_path, model, unfreezing=str(tmp_path / "schedule.yaml"))


@pytest.mark.parametrize("settings", [{"reinit_layers": 1}, {"reinit_pooler": True}])
@pytest.mark.parametrize("head", HEADS)
def test_reinit_of_what_does_not_train_is_refused(tmp_path, head, settings):
    with pytest.raises(ValueError, match="they would stay random"):
        StrategyTrainer(lora(head), arguments(tmp_path, **settings), train_dataset=rows())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("cut", [4, 6, 14])
def test_lora_resumes_to_equal_bits(tmp_path, head, cut):
    settings = {
        "layer_decay": 0.9,
        "lr_schedule": "slanted_triangular",
        "unfreezing": "gradual",
        "save_strategy": "steps",
        "save_steps": 2,
    }
    straight, _ = train(tmp_path / "straight", lora(head), **settings)
    train(tmp_path / "cut", lora(head), stop=cut, **settings)
    resumed, record = train(tmp_path / "cut", lora(head), resume=True, **settings)
    assert len(record.depths) == 30 - cut
    assert equal(snapshot(straight.model), snapshot(resumed.model))


def test_lora_with_its_task_type_trains_the_head(tmp_path):
    """`task_type="SEQ_CLS"` adds the classifier to modules_to_save by itself."""
    _, record = train(tmp_path, lora("frozen head", task_type="SEQ_CLS"), unfreezing="last", max_steps=3)
    assert record.depths == [{3, 4}] * 3


@pytest.mark.parametrize("unfreezing", ["gradual", "chain_thaw"])
def test_compiled_model_is_frozen_too(tmp_path, unfreezing):
    settings = {"unfreezing": unfreezing, "unfreeze_every": "2", "num_train_epochs": 2}
    runs = [
        train(tmp_path, tiny_bert(dropout=0.0), **settings, **compiled)
        for compiled in ({}, {"torch_compile": True, "torch_compile_backend": "eager"})
    ]
    assert hasattr(runs[1][0].model_wrapped, "_orig_mod")
    assert runs[1][1].depths == runs[0][1].depths
    assert runs[1][1].depths[:4] == [{4}, {4}, *([{3, 4}] * 2 if unfreezing == "gradual" else [{0}] * 2)]
    torch.testing.assert_close(snapshot(runs[1][0].model), snapshot(runs[0][0].model), rtol=0, atol=1e-5)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing_changes_nothing(tmp_path, use_reentrant):
    names = {field.name for field in dataclasses.fields(arguments(tmp_path))}
    name = "activation_checkpointing" if "activation_checkpointing" in names else "gradient_checkpointing"
    checkpointing = {name: True, f"{name}_kwargs": {"use_reentrant": use_reentrant}}
    settings = {"unfreezing": "gradual", "layer_decay": 0.9}
    runs = [train(tmp_path, tiny_bert(dropout=0.0), **settings, **extra) for extra in ({}, checkpointing)]
    assert runs[1][0].model.is_gradient_checkpointing
    assert runs[0][1].depths == runs[1][1].depths
    torch.testing.assert_close(snapshot(runs[1][0].model), snapshot(runs[0][0].model), rtol=0, atol=1e-5)
