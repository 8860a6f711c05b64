import copy
import dataclasses
from types import SimpleNamespace

import peft
import pytest
import torch
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForTokenClassification,
    BertModel,
    TrainerCallback,
)

from hf_ftstrategies import (
    EncoderClassifier,
    EncoderClassifierConfig,
    SelfDistillation,
    StrategyTrainer,
    StrategyTrainingArguments,
)
from tests.tiny import StopAt, arguments, equal, loaded_bert, rows, snapshot, tiny_bert

COMPOSED = {
    "num_train_epochs": 4,
    "layer_decay": 0.9,
    "lr_schedule": "slanted_triangular",
    "reinit_layers": 1,
    "unfreezing": "gradual",
    "unfreeze_every": "2",
    "frozen_in_eval_mode": True,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "weight_decay": 0.1,
}
# its name since transformers 5.20
NAMES = {field.name for field in dataclasses.fields(StrategyTrainingArguments)}
CHECKPOINTING = "activation_checkpointing" if "activation_checkpointing" in NAMES else "gradient_checkpointing"
TEACHERS = {
    "sda": {"self_distillation": "sda", "teacher_size": 3},
    "sda of many": {"self_distillation": "sda", "teacher_size": 11},
    "sda of one": {"self_distillation": "sda"},
    "sdv": {"self_distillation": "sdv", "teacher_size": 3},
    "ema": {"self_distillation": "ema"},
    "sda in bfloat16": {"self_distillation": "sda", "teacher_size": 3, "copy_storage": "bfloat16"},
    "sdv in bfloat16": {"self_distillation": "sdv", "teacher_size": 3, "copy_storage": "bfloat16"},
    "sdv on the host": {"self_distillation": "sdv", "teacher_size": 3, "copy_storage": "host"},
}
each_teacher = pytest.mark.parametrize("teacher", TEACHERS.values(), ids=TEACHERS)


def train(folder, model=None, callbacks=(), resume=None, **settings):
    model = tiny_bert() if model is None else model
    data = settings.pop("data", None) or rows()
    trainer = StrategyTrainer(model, arguments(folder, **settings), train_dataset=data, callbacks=list(callbacks))
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def logged(trainer, key):
    return [log[key] for log in trainer.state.log_history if key in log]


class Watch(TrainerCallback):
    """Calls a function after every step."""

    def __init__(self, look):
        self.look = look

    def on_step_end(self, args, state, control, **kwargs):
        self.look(state.global_step)


# --- What the teacher is ---


def by_hand(mode, size, weight, steps=8, accumulation=2, lr=0.1):
    """SGD on batches of 4 rows in order, all teachers from copies of whole models in float64."""
    model, data = tiny_bert(dropout=0.0), rows()
    students, average, gaps = [copy.deepcopy(model)], copy.deepcopy(model).double(), []
    for step in range(steps):
        gap_of_step = 0.0
        for micro in range(accumulation):
            begin = 4 * ((step * accumulation + micro) % 6)
            batch = data[begin : begin + 4]
            ids, labels = (
                torch.stack([row["input_ids"] for row in batch]),
                torch.tensor([row["labels"] for row in batch]),
            )
            with torch.no_grad():
                window = [student.double() for student in map(copy.deepcopy, students[-size:])]
                if mode == "sdv":
                    answer = sum(student(ids).logits for student in window) / len(window)
                else:
                    answer = (mean_of(window) if mode == "sda" else average)(ids).logits
            logits = model(ids).logits
            gap = ((logits - answer.float()) ** 2).sum() / logits.numel()
            ((F.cross_entropy(logits, labels) + weight * gap) / accumulation).backward()
            gap_of_step += gap.item() / accumulation
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(lr * parameter.grad)
                parameter.grad = None
            decay = min(0.995, (2 + step) / (11 + step))
            for mean, parameter in zip(average.parameters(), model.parameters()):
                mean.copy_(decay * mean + (1 - decay) * parameter)
        students.append(copy.deepcopy(model))
        gaps.append(gap_of_step)
    return model, gaps


def mean_of(models):
    mean = copy.deepcopy(models[0])
    with torch.no_grad():
        for parameter, *others in zip(mean.parameters(), *(m.parameters() for m in models)):
            parameter.copy_(torch.stack(others).mean(0))
    return mean


@pytest.mark.parametrize(
    ("mode", "size"), [("sda", 1), ("sda", 3), ("sda", 20), ("sdv", 1), ("sdv", 3), ("sdv", 20), ("ema", 1)]
)
def test_training_is_that_of_the_equations(tmp_path, mode, size):
    trainer = train(
        tmp_path,
        tiny_bert(dropout=0.0),
        self_distillation=mode,
        teacher_size=size,
        distillation_weight=5.0,
        optim="sgd",
        learning_rate=0.1,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        max_steps=8,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        train_sampling_strategy="sequential",
    )
    model, gaps = by_hand(mode, size, weight=5.0)
    torch.testing.assert_close(snapshot(trainer.model), snapshot(model), rtol=0, atol=1e-5)
    assert logged(trainer, "teacher_student_gap") == pytest.approx(gaps, rel=1e-3, abs=1e-7)
    assert gaps[0] < 1e-12  # the first teacher is the first student
    assert (max(gaps) > 1e-6) is (size > 1 or mode == "ema")


def test_of_one_student_both_kinds_of_teacher_are_the_same(tmp_path):
    runs = [train(tmp_path, self_distillation=mode, num_train_epochs=2) for mode in ("sda", "sdv")]
    assert equal(*(snapshot(run.model) for run in runs))
    assert min(logged(runs[0], "teacher_student_gap")) > 0  # the student has dropout, the teacher has not
    assert not equal(snapshot(runs[0].model), snapshot(train(tmp_path, num_train_epochs=2).model))


SETTINGS = {"plain": {}, "composed": COMPOSED, "checkpointing": {CHECKPOINTING: True, "max_steps": 4}}


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=SETTINGS)
def untaught(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("untaught")
    return request.param, folder, train(folder, loaded_bert(folder), **request.param)


@each_teacher
def test_a_teacher_without_weight_leaves_no_trace(tmp_path, untaught, teacher):
    """Losses, weights and the random stream of dropout are those of a training without teacher, to the bit."""
    settings, folder, plain = untaught
    taught = train(tmp_path, loaded_bert(folder), distillation_weight=0.0, **teacher, **settings)
    assert equal(snapshot(plain.model), snapshot(taught.model))
    assert logged(plain, "loss") == logged(taught, "loss")
    assert max(logged(taught, "teacher_student_gap")) > 0


def test_modules_keep_their_modes_and_the_teacher_has_no_dropout(tmp_path):
    model, seen = tiny_bert(), []
    strategy = SelfDistillation("sda")
    strategy._model = model.train()
    model.bert.encoder.layer[0].eval()
    before = {name: module.training for name, module in model.named_modules()}
    model.dropout.register_forward_hook(lambda module, *_: seen.append(module.training))
    inputs = {"input_ids": rows()[0]["input_ids"][None], "labels": torch.tensor([1])}
    stream = torch.get_rng_state()
    term = strategy.loss_term(model, inputs, {"logits": torch.zeros(1, 3, requires_grad=True)})
    assert seen == [False]
    assert torch.equal(stream, torch.get_rng_state())
    assert before == {name: module.training for name, module in model.named_modules()}
    term.backward()
    assert all(p.grad is None for p in model.parameters())


@each_teacher
def test_resumes_to_equal_bits(tmp_path, teacher):
    cut = 7  # within a phase of unfreezing
    settings, saved = {**COMPOSED, **teacher}, {"save_strategy": "steps", "save_steps": cut}
    straight = train(tmp_path / "straight", loaded_bert(tmp_path), **settings)
    train(tmp_path / "cut", loaded_bert(tmp_path), [StopAt(cut)], **settings, **saved)
    resumed = train(tmp_path / "cut", loaded_bert(tmp_path), resume=True, **settings, **saved)
    assert resumed.state.global_step == straight.state.global_step == 12
    assert equal(snapshot(straight.model), snapshot(resumed.model))
    assert logged(straight, "teacher_student_gap")[cut:] == logged(resumed, "teacher_student_gap")[cut:]
    names = {path.name for path in (tmp_path / "cut" / f"checkpoint-{cut}").iterdir()}
    assert ("strategies.safetensors" in names) is (teacher != TEACHERS["sda of one"])


# --- Who is copied ---


def held(trainer):
    """Numbers of parameters in the ring and in the mean after each step, for `Watch`."""
    sizes = []

    def look(step):
        (strategy,) = (s for s in trainer.strategies if s.name == "self_distillation")
        sizes.append(sum(piece.shape[1] for piece in strategy._students._ring.pieces))

    trainer.add_callback(Watch(look))
    return sizes


@pytest.mark.parametrize(("unfreezing", "phases"), [("gradual", 5), ("last", 1), ("chain_thaw", 6)])
def test_only_what_has_trained_is_copied(tmp_path, unfreezing, phases):
    args = arguments(
        tmp_path, self_distillation="sda", teacher_size=2, unfreezing=unfreezing, unfreeze_every="1", max_steps=6
    )
    trainer = StrategyTrainer(tiny_bert(), args, train_dataset=rows())
    sizes = held(trainer)
    parts = [sum(p.numel() for p in trainer.layer_map.parameters_at(depth).values()) for depth in range(5)]
    trainer.train()
    order = {"gradual": [4, 3, 2, 1, 0], "last": [3, 4], "chain_thaw": [4, 0, 1, 2, 3]}[unfreezing]
    expected = [sum(parts[depth] for depth in order[: step + 1 + (unfreezing == "last")]) for step in range(6)]
    assert sizes == expected


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # PEFT reads the old name
def test_lora_copies_its_matrices_alone(tmp_path):
    torch.manual_seed(0)
    config = peft.LoraConfig(r=2, target_modules=["query"], modules_to_save=["classifier"])
    model = peft.get_peft_model(tiny_bert(), config)
    args = arguments(tmp_path, self_distillation="sda", teacher_size=2)
    trainer = StrategyTrainer(model, args, train_dataset=rows())
    sizes = held(trainer)
    trainer.train()
    assert sizes == [sum(p.numel() for p in model.parameters() if p.requires_grad)] * 6
    assert logged(trainer, "teacher_student_gap")[-1] > 0


def test_tied_weights_change_together(tmp_path):
    """The teacher of a masked language model, whose output matrix is that of the embeddings."""
    torch.manual_seed(0)
    model = BertForMaskedLM(tiny_bert().config)
    strategy, ids = SelfDistillation("sda", teacher_size=2), rows()[0]["input_ids"][None]
    strategy.layer_map = object()
    strategy.on_train_begin(None, SimpleNamespace(global_step=0), None, model=model)
    strategy.on_pre_optimizer_step(None, None, None)
    first = copy.deepcopy(model)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.add_(0.1)
    strategy.on_step_end(None, None, None, optimizer=SimpleNamespace(step_was_skipped=False))
    teacher = mean_of([first, model]).eval()
    inputs, outputs = {"input_ids": ids, "labels": ids}, model.eval()(ids)
    expected = (outputs.logits - teacher(ids).logits).square().mean()
    torch.testing.assert_close(strategy.loss_term(model, inputs, outputs), expected)


def test_a_skipped_step_makes_no_student():
    model, strategy = tiny_bert(), SelfDistillation("sdv", teacher_size=4)
    strategy.layer_map = object()
    strategy.on_train_begin(None, SimpleNamespace(global_step=0), None, model=model)
    for skipped in (False, True, True, False):
        strategy.on_pre_optimizer_step(None, None, None)
        strategy.on_step_end(None, None, None, optimizer=SimpleNamespace(step_was_skipped=skipped))
    assert strategy._students.count == 3  # the initial one and two more


def test_mixed_precision_computes_the_teacher_of_its_own_weights(tmp_path):
    """Autocast keeps the student's weights in bf16; without dropout, a gap is only there if it does not reuse them."""
    settings = {"self_distillation": "sda", "teacher_size": 3, "train_sampling_strategy": "sequential"}
    gaps = [
        logged(train(tmp_path, tiny_bert(dropout=0.0), bf16=bf16, **settings), "teacher_student_gap")
        for bf16 in (False, True)
    ]
    assert gaps[1][1:] == pytest.approx(gaps[0][1:], rel=0.2)
    assert min(gaps[0][1:]) > 1e-6


# --- What is compared ---


def term_of(model, inputs, teacher_of=None):
    strategy = SelfDistillation("sda")
    strategy._model = model
    model.train()
    outputs = model(**inputs)
    teacher = copy.deepcopy(model).eval()(
        **{k: v for k, v in inputs.items() if not k.endswith(("labels", "positions"))}
    )
    return strategy.loss_term(model, inputs, outputs), outputs, teacher


IDS = torch.stack([row["input_ids"] for row in rows(4)])
MASK = (torch.arange(8) < torch.tensor([[8], [5], [3], [8]])).long()


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ({}, torch.tensor([0, 1, 2, 0])),
        ({"num_labels": 1, "problem_type": "regression"}, torch.rand(4)),
        ({"problem_type": "multi_label_classification"}, torch.ones(4, 3)),
    ],
)
def test_sequence_classification(settings, labels):
    term, student, teacher = term_of(
        tiny_bert(**settings), {"input_ids": IDS, "attention_mask": MASK, "labels": labels}
    )
    torch.testing.assert_close(term, F.mse_loss(student.logits, teacher.logits))
    assert term > 0


def test_token_classification_counts_labelled_tokens_that_are_no_padding():
    labels = torch.ones_like(IDS).masked_fill(torch.rand(IDS.shape) < 0.3, -100)
    model = BertForTokenClassification(tiny_bert().config)
    term, student, teacher = term_of(model, {"input_ids": IDS, "attention_mask": MASK, "labels": labels})
    counted = (labels != -100) & (MASK == 1)
    torch.testing.assert_close(term, F.mse_loss(student.logits[counted], teacher.logits[counted]))
    nothing = {"input_ids": IDS, "attention_mask": MASK, "labels": torch.full_like(IDS, -100)}
    assert term_of(model, nothing)[0] == 0


def test_question_answering_counts_start_and_end():
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    inputs |= {name: torch.tensor([0, 1, 2, 3]) for name in ("start_positions", "end_positions")}
    term, student, teacher = term_of(BertForQuestionAnswering(tiny_bert(num_labels=2).config), inputs)
    parts = [F.mse_loss(student[name][MASK == 1], teacher[name][MASK == 1]) for name in ("start_logits", "end_logits")]
    torch.testing.assert_close(term, sum(parts) / 2)


def test_encoder_classifier_with_chunks():
    config = EncoderClassifierConfig(
        text_config=BertConfig(**{**tiny_bert().config.to_dict(), "model_type": "bert"}),
        chunk_pooling="mean",
        num_labels=3,
    )
    inputs = {"input_ids": IDS, "attention_mask": MASK, "chunk_counts": torch.tensor([3, 1])}
    inputs["labels"] = torch.tensor([0, 2])
    term, student, teacher = term_of(EncoderClassifier(config), inputs)
    torch.testing.assert_close(term, F.mse_loss(student.logits, teacher.logits))


def test_a_model_without_logits_is_named():
    model = BertModel(tiny_bert().config)
    with pytest.raises(ValueError, match=r"returns last_hidden_state, pooler_output\. It works with"):
        term_of(model, {"input_ids": IDS})
    with pytest.raises(ValueError, match="the model returns tuple"):
        SelfDistillation("sda").loss_term(model, {}, (torch.zeros(2, 3),))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "sdx"}, "known are none, sda, sdv, ema. Did you mean"),
        ({"teacher_size": 0}, "teacher_size is 0: a teacher is made of at least 1"),
        ({"mode": "ema", "teacher_size": 3}, "self_distillation='ema' has no window"),
        ({"storage": "hosts"}, "known are device, host, bfloat16. Did you mean 'host'"),
        ({"weight": -1.0}, "distillation_weight is -1.0"),
        ({"weight": float("nan")}, "distillation_weight is nan"),
    ],
)
def test_refuses(settings, message):
    with pytest.raises(ValueError, match=message):
        SelfDistillation(**settings)


def test_describes_itself():
    assert SelfDistillation("sda", 3).summary() == "self-distillation from the mean of 3 students, weight 1"
    assert SelfDistillation("sdv").summary() == "self-distillation from the vote of 1 student, weight 1"
    assert repr(SelfDistillation("ema", weight=0.5)) == "SelfDistillation(mode='ema', teacher_size=1, weight=0.5)"
