"""Random settings of a training: refused with one `ValueError`, or planned soundly and read back as they were."""

import json
import math
from dataclasses import fields

from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import HfArgumentParser, TrainingArguments

from hf_ftstrategies import StrategyTrainer, StrategyTrainingArguments
from hf_ftstrategies.optim.phases import MODES, parse_every
from hf_ftstrategies.optim.schedules import Schedule
from tests.fuzz.attempt import attempt
from tests.tiny import arguments, rows, tiny_bert

OWN = {f.name for f in fields(StrategyTrainingArguments)} - {f.name for f in fields(TrainingArguments)}
MODEL, DATA = tiny_bert(), rows()
PARAMETERS = sum(p.numel() for p in MODEL.parameters())

RATES = st.floats(1e-8, 1.0)
SOUND = {
    "layer_decay": st.floats(0.01, 1.0),
    "layer_decay_style": st.sampled_from(["sun", "sun_code", "zhang"]),
    "head_learning_rate": RATES,
    "lr_schedule": st.sampled_from(["slanted_triangular", "bert_linear", "none"]),
    "stlr_cut_fraction": st.floats(0.001, 0.999),
    "stlr_ratio": st.floats(1.0, 1e4),
    "unfreezing": st.sampled_from([*MODES, "none"]),
    "unfreeze_every": st.sampled_from(["epoch", "1", "7", "0.1", "0.001"]),
    "frozen_in_eval_mode": st.booleans(),
    "bias_correction": st.booleans(),
    "reinit_layers": st.integers(0, 3),
    "reinit_pooler": st.booleans(),
    "evaluations": st.integers(1, 100),
    "learning_rate": RATES,
    "weight_decay": st.floats(0, 0.5),
    "num_train_epochs": st.floats(0.1, 40),
    "gradient_accumulation_steps": st.integers(1, 4),
    "lr_scheduler_type": st.sampled_from(["linear", "cosine", "constant", "polynomial", "reduce_lr_on_plateau"]),
    "warmup_steps": st.sampled_from([0, 0.1, 3]),
}
FLOATS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, 1e-320, 1e308, math.inf, math.nan]))
INTEGERS = st.one_of(st.integers(-3, 3), st.integers(-(2**70), 2**70))
ANYTHING = st.one_of(FLOATS, INTEGERS, st.booleans(), st.text(max_size=5), st.none(), st.lists(st.none(), max_size=1))
WILD = {
    **dict.fromkeys(["layer_decay", "head_learning_rate", "stlr_cut_fraction", "stlr_ratio"], FLOATS),
    **dict.fromkeys(["max_grad_norm_per_tensor", "max_grad_norm", "learning_rate", "weight_decay"], FLOATS),
    **dict.fromkeys(["num_train_epochs", "warmup_steps", "unfreeze_every"], FLOATS),
    **dict.fromkeys(["reinit_layers", "evaluations", "early_stopping_patience", "max_steps"], INTEGERS),
    **dict.fromkeys(["gradient_accumulation_steps", "per_device_train_batch_size"], INTEGERS),
    **dict.fromkeys(["layer_decay_style", "lr_schedule", "unfreezing"], st.text(max_size=5)),
}


def chosen(values, least=0, most=6):
    """Some of the settings, with a value each."""
    names = st.lists(st.sampled_from(sorted(values)), min_size=least, max_size=most, unique=True)
    return names.flatmap(lambda names: st.fixed_dictionaries({name: values[name] for name in names}))


def planned(args):
    return StrategyTrainer(MODEL, args, train_dataset=DATA, eval_dataset=DATA).plan()


def check_plan(plan):
    content = plan.to_dict()
    assert sum(row["parameters"] for row in content["depths"]) == PARAMETERS
    assert sum(group["parameters"] for group in content["groups"]) == PARAMETERS
    for row in (*content["depths"], *content["groups"]):
        assert math.isfinite(row["learning_rate"])
        assert row["learning_rate"] >= 0
    assert all(math.isfinite(factor) and factor >= 0 for _, factor in content["schedule"])
    ends = [(phase["first_step"], phase["last_step"]) for phase in content["phases"]]
    assert ends[0][0] == 0
    assert ends[-1][1] == content["training"]["total_steps"]
    assert all(a[1] == b[0] and a[0] < a[1] for a, b in zip(ends, [*ends[1:], (ends[-1][1], None)]))
    assert json.loads(json.dumps(content)) == content


@settings(max_examples=120)
@given(values=chosen(SOUND))
def test_parsed_planned_written_and_parsed_again(tmp_path_factory, values):
    """A command line, the arguments it makes, their JSON and a command line of that mean the same run."""
    folder = str(tmp_path_factory.getbasetemp())
    words = ["--output_dir", folder, "--use_cpu", "True", "--disable_tqdm", "True", "--report_to", "none"]
    words += [word for name, value in values.items() for word in (f"--{name}", str(value))]
    parse = HfArgumentParser(StrategyTrainingArguments).parse_args_into_dataclasses
    plan, message = attempt(lambda: planned(parse(words)[0]))
    if message is not None:  # settings that contradict each other, phases that do not fit
        assert any(name in message for name in values)
        return
    check_plan(plan)
    (first,) = parse(words)
    second = StrategyTrainingArguments(**json.loads(first.to_json_string()))
    assert {name: getattr(second, name) for name in OWN} == {name: getattr(first, name) for name in OWN}
    assert planned(second).to_dict() == plan.to_dict()
    written = {name: second.to_dict()[name] for name in values}
    written |= {"lr_schedule": written["lr_schedule"] or "none"} if "lr_schedule" in written else {}
    again = [word for name, value in written.items() for word in (f"--{name}", str(value))]
    assert planned(parse([*words[:8], *again])[0]).to_dict() == plan.to_dict()


def assert_refused_or_sound(folder, values):
    plan, message = attempt(lambda: planned(arguments(folder, **values)))
    if message is None:
        check_plan(plan)


@settings(max_examples=300)
@given(sound=chosen(SOUND), wild=chosen(WILD, least=1, most=2))
def test_wild_values_are_refused_or_planned(tmp_path_factory, sound, wild):
    assert_refused_or_sound(tmp_path_factory.getbasetemp(), sound | wild)


@given(sound=chosen(SOUND), name=st.sampled_from(sorted(OWN)), value=ANYTHING)
def test_values_of_any_type_are_refused_or_planned(tmp_path_factory, sound, name, value):
    assert_refused_or_sound(tmp_path_factory.getbasetemp(), sound | {name: value})


@given(text=st.one_of(ANYTHING, st.text()))
def test_unfreeze_every_is_read_as_one_of_three_things(text):
    every, message = attempt(lambda: parse_every(text))
    if message is not None:
        assert message.startswith("unfreeze_every is")
        return
    assert every == "epoch" or 0 < every < 1 or (isinstance(every, int) and every >= 1)
    assert parse_every(str(every)) == every


@given(
    name=st.sampled_from(["slanted_triangular", "bert_linear"]),
    total=st.integers(1, 10**9),
    warmup=st.integers(0, 10**9),
    cut=st.floats(0, 1, exclude_min=True, exclude_max=True),
    ratio=st.floats(1, allow_infinity=False),
    data=st.data(),
)
def test_schedules_are_factors(name, total, warmup, cut, ratio, data):
    schedule = Schedule(name, total, min(warmup, total), cut, ratio)
    step = data.draw(st.integers(0, total))
    assert 0 <= schedule(step) <= 1
    if name == "slanted_triangular":
        assert schedule(step) >= 1 / ratio * (1 - 1e-12)
