import pytest
import torch
from datasets import Dataset
from transformers import Trainer, TrainerCallback

from hf_ftstrategies import GradualUnfreezing, LayerMap, StrategyTrainer, StrategyTrainingArguments
from tests.tiny import Script, StopAt, arguments, equal, rows, snapshot, tiny_bert

# transformers 5.17 to 5.22 know it by its old name only
CHECKPOINTING = next(
    name
    for name in ("activation_checkpointing", "gradient_checkpointing")
    if name in StrategyTrainingArguments.__dataclass_fields__
)


class Record(TrainerCallback):
    """Weights after every step."""

    def __init__(self):
        self.weights, self.training_modules = [], []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.weights.append(snapshot(model))

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.weights.append(snapshot(model))
        self.training_modules.append([block.training for block in model.bert.encoder.layer])


def run(folder, record=None, data=None, trainer=StrategyTrainer, callbacks=(), eval_dataset=None, **settings):
    record = Record() if record is None else record
    trainer = trainer(
        tiny_bert(),
        arguments(folder, weight_decay=0.5, **settings),
        train_dataset=rows() if data is None else data,
        eval_dataset=eval_dataset,
        callbacks=[record, *callbacks],
    )
    trainer.train()
    return trainer, record


def moved_depths(record, model, step):
    """Depths of the weights that changed in one step."""
    layer_map = LayerMap.from_model(model)
    before, after = record.weights[step], record.weights[step + 1]
    return {layer_map.depth_of(n) for n in before if not torch.equal(before[n], after[n])}


@pytest.mark.parametrize("accumulation", [1, 2])
def test_what_is_frozen_does_not_move_by_a_bit_and_the_rest_does(tmp_path, accumulation):
    trainer, record = run(
        tmp_path,
        unfreezing="gradual",
        num_train_epochs=5,
        per_device_train_batch_size=4 // accumulation,
        gradient_accumulation_steps=accumulation,
    )
    expected = [{4}, {3, 4}, {2, 3, 4}, {1, 2, 3, 4}, {0, 1, 2, 3, 4}]
    assert [moved_depths(record, trainer.model, step) for step in range(30)] == [e for e in expected for _ in range(6)]


def test_chain_thaw_freezes_again_what_it_had_trained(tmp_path):
    trainer, record = run(tmp_path, unfreezing="chain_thaw", unfreeze_every="1")
    moved = [moved_depths(record, trainer.model, step) for step in range(6)]
    assert moved == [{4}, {0}, {1}, {2}, {3}, {0, 1, 2, 3, 4}]


def test_everything_may_train_again_afterwards(tmp_path):
    trainer, _ = run(tmp_path, unfreezing="head", frozen_in_eval_mode=True)
    assert all(p.requires_grad for p in trainer.model.parameters())
    assert not any(m._forward_pre_hooks for m in trainer.model.modules())


@pytest.mark.parametrize("frozen_in_eval_mode", [False, True])
def test_frozen_blocks_in_eval_mode(tmp_path, frozen_in_eval_mode):
    _, record = run(
        tmp_path,
        unfreezing="ulmfit",
        unfreeze_every="2",
        frozen_in_eval_mode=frozen_in_eval_mode,
        max_steps=6,
    )
    frozen = [[False] * 3] * 2 + [[False, False, True]] * 2 + [[True] * 3] * 2
    assert record.training_modules == (frozen if frozen_in_eval_mode else [[True] * 3] * 6)


def test_a_write_into_a_frozen_parameter_is_noticed(tmp_path):
    class Meddler(TrainerCallback):
        def on_optimizer_step(self, args, state, control, model=None, **kwargs):
            with torch.no_grad():
                model.bert.embeddings.word_embeddings.weight.add_(1.0)

    with pytest.raises(RuntimeError, match="frozen parameters changed in step 1"):
        run(tmp_path, unfreezing="head", callbacks=[Meddler()])


def test_parameters_frozen_by_the_user_never_train(tmp_path):
    model = tiny_bert()
    model.bert.embeddings.requires_grad_(False)
    before = snapshot(model.bert.embeddings)
    StrategyTrainer(model, arguments(tmp_path, unfreezing="gradual", num_train_epochs=5), train_dataset=rows()).train()
    assert equal(before, snapshot(model.bert.embeddings))
    assert not any(p.requires_grad for p in model.bert.embeddings.parameters())


def test_as_a_plain_callback_of_a_stock_trainer(tmp_path):
    record = Record()
    args = arguments(tmp_path, num_train_epochs=3, weight_decay=0.5)
    trainer = Trainer(tiny_bert(), args, train_dataset=rows(), callbacks=[GradualUnfreezing("ulmfit"), record])
    trainer.train()
    moved = [moved_depths(record, trainer.model, step) for step in range(18)]
    assert moved == [{4}] * 6 + [{3, 4}] * 6 + [{0, 1, 2, 3, 4}] * 6


SCHEDULE = """
phases:
  - {train: head, until: {early_stop: {metric: score, patience: 2}}}
  - {train: [head, block 3], until: {step: 10}}
  - {train: all}
"""


def early_stopped(folder, resume=None, stop=None, scores=(0.1, 0.3, 0.2, 0.3, *[0.0] * 20)):
    folder.mkdir(exist_ok=True)
    (folder / "schedule.yaml").write_text(SCHEDULE)
    record, callbacks = Record(), [] if stop is None else [stop]
    trainer = StrategyTrainer(
        tiny_bert(),
        arguments(
            folder / "out",
            unfreezing=str(folder / "schedule.yaml"),
            num_train_epochs=2,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="steps",
            save_steps=1,
        ),
        train_dataset=rows(),
        eval_dataset=rows(8),
        callbacks=callbacks,
    )
    trainer.callback_handler.callbacks.insert(0, Script(scores))
    trainer.callback_handler.callbacks.insert(1, record)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, record


def test_an_early_stopped_phase_ends_with_its_best_weights(tmp_path):
    trainer, record = early_stopped(tmp_path)
    # scores .1 .3 .2 .3: best after step 2, two evaluations without better ones end the phase after step 4
    moved = [moved_depths(record, trainer.model, step) for step in range(12)]
    assert moved[:4] == [{4}] * 4
    assert moved[5:10] == [{3, 4}] * 5
    assert moved[10:] == [{0, 1, 2, 3, 4}] * 2
    saved = torch.load(tmp_path / "out" / "checkpoint-4" / "optimizer.pt", weights_only=True)
    assert len(saved["state"]) == 4  # pooler and classifier only
    from safetensors.torch import load_file

    assert equal(load_file(tmp_path / "out" / "checkpoint-4" / "model.safetensors"), record.weights[2])


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 7, 10])
def test_early_stopped_phases_resume_to_equal_bits(tmp_path, cut):
    scores = [0.1, 0.3, 0.2, 0.3, *[0.0] * 20]
    straight, _ = early_stopped(tmp_path / "straight")
    early_stopped(tmp_path / "cut", stop=StopAt(cut))
    (tmp_path / "cut" / "schedule.yaml").write_text(SCHEDULE)
    resumed, _ = early_stopped(tmp_path / "cut", resume=True, scores=scores[cut:])
    assert equal(snapshot(straight.model), snapshot(resumed.model))


def test_the_last_phase_can_stop_the_training(tmp_path):
    (tmp_path / "s.yaml").write_text("phases: [{train: all, until: {early_stop: {metric: loss, patience: 1}}}]")
    trainer, _ = run(
        tmp_path,
        unfreezing=str(tmp_path / "s.yaml"),
        num_train_epochs=50,
        learning_rate=1.0,
        eval_strategy="epoch",
        eval_dataset=rows(8),
    )
    assert trainer.state.global_step < 300


def test_an_early_stop_needs_evaluations(tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEDULE)
    with pytest.raises(ValueError, match="nothing is evaluated during training"):
        run(tmp_path, unfreezing=str(tmp_path / "s.yaml"), num_train_epochs=3)


def test_an_early_stop_on_one_of_several_evaluation_sets(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "phases: [{train: head, until: {early_stop: {metric: a_loss}, step: 9}}, {train: all}]"
    )
    sets = {"a": rows(8), "b": rows(8, seed=1)}
    trainer, record = run(
        tmp_path, unfreezing=str(tmp_path / "s.yaml"), num_train_epochs=2, eval_strategy="epoch", eval_dataset=sets
    )
    assert moved_depths(record, trainer.model, 10) == {0, 1, 2, 3, 4}


def test_streamed_data(tmp_path):
    data = Dataset.from_list(
        [{"input_ids": row["input_ids"].tolist(), "labels": row["labels"]} for row in rows(48)]
    ).to_iterable_dataset()
    trainer, record = run(tmp_path, unfreezing="ulmfit", unfreeze_every="2", max_steps=6, data=data)
    moved = [moved_depths(record, trainer.model, step) for step in range(6)]
    assert moved == [{4}] * 2 + [{3, 4}] * 2 + [{0, 1, 2, 3, 4}] * 2


def test_an_unknown_metric_is_named(tmp_path):
    (tmp_path / "s.yaml").write_text("phases: [{train: all, until: {early_stop: {metric: los}}}]")
    with pytest.raises(ValueError, match=r"'eval_los'.*Did you mean 'eval_loss'"):
        run(tmp_path, unfreezing=str(tmp_path / "s.yaml"), eval_strategy="epoch", eval_dataset=rows(8))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ddp_static_graph": True}, "ddp_static_graph"),
        ({"ddp_find_unused_parameters": False}, "ddp_find_unused_parameters=True"),
        ({CHECKPOINTING: True}, "checkpointing switches off"),
    ],
)
def test_ddp_options_that_forbid_freezing(tmp_path, monkeypatch, settings, message):
    args = arguments(tmp_path, unfreezing="gradual", **settings)
    monkeypatch.setattr(type(args), "world_size", 2)
    with pytest.raises(ValueError, match=message):
        GradualUnfreezing().check(args, LayerMap.from_model(tiny_bert()))


def test_refuses_before_any_step(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'gradual'"):
        arguments(tmp_path, unfreezing="gradul")
    with pytest.raises(ValueError, match="unfreeze_every"):
        arguments(tmp_path, unfreezing="gradual", unfreeze_every="sometimes")
    with pytest.raises(ValueError, match="cannot be read"):
        arguments(tmp_path, unfreezing="none.yaml")
    with pytest.raises(ValueError, match="would begin at step 18 and the training ends at step 18"):
        run(tmp_path, unfreezing="gradual", num_train_epochs=3)
