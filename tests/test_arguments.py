import copy
import dataclasses
import json
import pickle
import re

import pytest
from transformers import HfArgumentParser, TrainingArguments

from hf_ftstrategies import StrategyTrainingArguments

INHERITED = {field.name: field for field in dataclasses.fields(TrainingArguments)}
FIELDS = {field.name: field for field in dataclasses.fields(StrategyTrainingArguments)}
OWN = [name for name in FIELDS if name not in INHERITED]

# A command line with every field of ours, none at its default, and what must come out.
COMMAND = {
    "layer_decay": ("0.9", 0.9),
    "layer_decay_style": ("zhang", "zhang"),
    "head_learning_rate": ("1e-3", 1e-3),
    "lr_schedule": ("slanted_triangular", "slanted_triangular"),
    "stlr_cut_fraction": ("0.2", 0.2),
    "stlr_ratio": ("16", 16.0),
    "unfreezing": ("gradual", "gradual"),
    "unfreeze_every": ("0.1", "0.1"),
    "frozen_in_eval_mode": ("True", True),
    "bias_correction": ("False", False),
    "max_grad_norm_per_tensor": ("1.0", 1.0),
    "reinit_layers": ("2", 2),
    "reinit_pooler": ("False", False),
    "mixout": ("0.3", 0.3),
    "mixout_mask": ("parameter", "parameter"),
    "mixout_head": ("False", False),
    "mixout_keep_dropout": ("True", True),
    "pretrained_weight_decay": ("0.01", 0.01),
    "pretrained_weight_decay_head": ("True", True),
    "log_layer_distance": ("True", True),
    "self_distillation": ("sdv", "sdv"),
    "teacher_size": ("3", 3),
    "distillation_weight": ("1.5", 1.5),
    "self_ensemble": ("last_k", "last_k"),
    "ensemble_size": ("5", 5),
    "ensemble_start": ("0.5", 0.5),
    "copy_storage": ("bfloat16", "bfloat16"),
    "evaluations": ("10", 10),
    "early_stopping_patience": ("3", 3),
}
VALUES = {name: value for name, (_, value) in COMMAND.items()} | {"max_grad_norm": 0}


def make(folder, **values):
    return StrategyTrainingArguments(output_dir=str(folder), **values)


def parse(folder, *words):
    (args,) = HfArgumentParser(StrategyTrainingArguments).parse_args_into_dataclasses(
        ["--output_dir", str(folder), *words]
    )
    return args


def own(args):
    return {name: getattr(args, name) for name in OWN}


def without_own(args):
    return {key: value for key, value in args.to_dict().items() if key not in OWN}


def test_the_table_above_has_every_field():
    assert list(COMMAND) == OWN
    assert all(VALUES[name] != FIELDS[name].default for name in OWN)


def test_what_is_inherited_keeps_its_default(tmp_path):
    for name, field in INHERITED.items():
        assert FIELDS[name].default == field.default
        assert FIELDS[name].default_factory == field.default_factory
        assert FIELDS[name].type == field.type
    assert without_own(make(tmp_path)) == TrainingArguments(output_dir=str(tmp_path)).to_dict()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("layer_dcay", "layer_decay"),
        ("reinit_layer", "reinit_layers"),
        ("learning_rates", "learning_rate"),
        ("evaluation_strategy", "eval_strategy"),  # its name in Transformers 4
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_one(tmp_path, name, nearest):
    with pytest.raises(ValueError, match=f"'{name}' is no field .* Did you mean '{nearest}'"):
        make(tmp_path, **{name: 1})


def test_an_unknown_field_without_a_near_one(tmp_path):
    with pytest.raises(ValueError, match=r"'qqq' is no field of StrategyTrainingArguments\.$"):
        make(tmp_path, qqq=1)


def test_a_subclass_has_its_fields_too(tmp_path):
    @dataclasses.dataclass
    class More(StrategyTrainingArguments):
        temperature: float = 1.0

    assert More(output_dir=str(tmp_path), temperature=2.0).temperature == 2.0
    with pytest.raises(ValueError, match=r"no field of More\. Did you mean 'temperature'"):
        More(output_dir=str(tmp_path), temprature=2.0)


def test_every_field_is_read_from_a_command_line(tmp_path):
    words = [word for name, (text, _) in COMMAND.items() for word in (f"--{name}", text)]
    args = parse(tmp_path, *words, "--max_grad_norm", "0")
    assert own(args) == {name: value for name, (_, value) in COMMAND.items()}
    for name, (_, value) in COMMAND.items():
        assert type(getattr(args, name)) is type(value)
    assert args == make(tmp_path, **VALUES)


def test_a_command_line_without_our_fields(tmp_path):
    assert own(parse(tmp_path)) == {name: FIELDS[name].default for name in OWN}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--no_bias_correction"], {"bias_correction": False}),
        (["--frozen_in_eval_mode"], {"frozen_in_eval_mode": True}),
        (["--reinit_pooler", "true"], {"reinit_pooler": True}),
        (["--layer-decay", "0.5"], {"layer_decay": 0.5}),
        (["--lr_schedule", "none"], {"lr_schedule": None}),
        (["--unfreeze_every", "100"], {"unfreeze_every": "100"}),
    ],
)
def test_other_ways_to_write_a_field(tmp_path, words, expected):
    args = parse(tmp_path, *words)
    assert {name: getattr(args, name) for name in expected} == expected


@pytest.mark.parametrize("name", OWN)
def test_every_field_has_its_help(name):
    text = FIELDS[name].metadata["help"]
    assert text.endswith(".")
    help_text = HfArgumentParser(StrategyTrainingArguments).format_help()
    assert "".join(text.split()) in "".join(help_text.split())
    assert f"{name} (`" in StrategyTrainingArguments.__doc__


@pytest.mark.parametrize("values", [{}, VALUES])
def test_round_trips(tmp_path, values):
    args = make(tmp_path, **values)
    for twin in (copy.copy(args), copy.deepcopy(args), pickle.loads(pickle.dumps(args)), dataclasses.replace(args)):
        assert type(twin) is StrategyTrainingArguments
        assert twin == args
    for content in (args.to_dict(), json.loads(args.to_json_string())):
        twin = StrategyTrainingArguments(**content)
        assert own(twin) == own(args)
        assert twin.to_dict() == args.to_dict()
    assert set(OWN) <= set(args.to_sanitized_dict())


@pytest.mark.parametrize(("count", "interval"), [(1, 0.5), (2, 0.5), (10, 0.1)])  # Trainer reads 1 as every step
def test_evaluations_set_the_intervals_of_trainer(tmp_path, count, interval):
    args = make(tmp_path, evaluations=count)
    assert (args.eval_strategy, args.eval_steps, args.save_steps) == ("steps", interval, interval)


# {field: value} and what the message must say
BAD = [
    ({"layer_decay": 0}, "layer_decay is 0: give a factor in"),
    ({"layer_decay": -0.5}, "layer_decay is -0.5"),
    ({"layer_decay": 1.5}, "layer_decay is 1.5"),
    ({"layer_decay": float("nan")}, "layer_decay is nan"),
    ({"layer_decay": 0.9, "layer_decay_style": "zang"}, "known are sun, sun_code, zhang. Did you mean 'zhang'"),
    ({"head_learning_rate": 0}, "head_learning_rate is 0: give a positive rate"),
    ({"head_learning_rate": -1e-3}, "head_learning_rate is -0.001"),
    ({"reinit_layers": -1}, "reinit_layers is -1"),
    ({"mixout": -0.1}, "mixout is -0.1: give the share"),
    ({"mixout": 1.0}, "mixout is 1.0"),
    ({"mixout": float("nan")}, "mixout is nan"),
    ({"mixout": 0.5, "mixout_mask": "columns"}, "known are column, parameter. Did you mean 'column'"),
    ({"pretrained_weight_decay": -1}, "pretrained_weight_decay is -1: give a positive factor"),
    ({"pretrained_weight_decay": float("inf")}, "pretrained_weight_decay is inf"),
    ({"optim": "sgd", "bias_correction": False}, "optim is 'sgd'"),
    ({"optim": "adafactor", "bias_correction": False}, "optim is 'adafactor'"),
    ({"max_grad_norm_per_tensor": 1.0}, "set bias_correction=False with it"),
    ({"max_grad_norm_per_tensor": 1.0, "bias_correction": False}, "Set max_grad_norm=0"),
    ({"lr_schedule": "slanted_triangle"}, "Did you mean 'slanted_triangular'"),
    ({"lr_schedule": "cosine"}, "Trainer's own schedules are chosen with lr_scheduler_type"),
    ({"lr_schedule": "bert_linear", "lr_scheduler_type": "cosine"}, "two schedules for one run"),
    ({"lr_schedule": "slanted_triangular", "warmup_steps": 3}, "set stlr_cut_fraction instead"),
    ({"lr_schedule": "slanted_triangular", "stlr_cut_fraction": 0}, "stlr_cut_fraction is 0"),
    ({"lr_schedule": "slanted_triangular", "stlr_cut_fraction": 1}, "stlr_cut_fraction is 1"),
    ({"lr_schedule": "slanted_triangular", "stlr_ratio": 0.5}, "stlr_ratio is 0.5"),
    ({"unfreezing": "gradul"}, "Did you mean 'gradual'"),
    ({"unfreezing": "missing.yaml"}, "cannot be read"),
    ({"unfreeze_every": "0"}, "unfreeze_every is '0'"),
    ({"unfreeze_every": "-2"}, "unfreeze_every is '-2'"),
    ({"unfreeze_every": "1.5"}, "unfreeze_every is '1.5'"),
    ({"unfreeze_every": "inf"}, "unfreeze_every is 'inf'"),
    ({"unfreeze_every": "nan"}, "unfreeze_every is 'nan'"),
    ({"unfreeze_every": "epochs"}, "unfreeze_every is 'epochs'"),
    ({"self_distillation": "SDA"}, "Did you mean 'sda'"),
    ({"self_distillation": None}, "self_distillation is None"),
    ({"self_distillation": "sda", "teacher_size": 0}, "teacher_size is 0"),
    ({"self_distillation": "ema", "teacher_size": 2}, "has no window"),
    ({"self_distillation": "sda", "distillation_weight": -1.0}, "distillation_weight is -1.0"),
    ({"teacher_size": "3"}, "teacher_size is '3': give a value of type int"),
    ({"self_ensemble": "last"}, "known are none, se, ema, last_k"),
    ({"self_ensemble": "last_k", "ensemble_size": 0}, "ensemble_size is 0"),
    ({"self_ensemble": "se", "ensemble_start": 1.5}, "ensemble_start is 1.5"),
    ({"self_ensemble": "se", "ensemble_start": -0.1}, "ensemble_start is -0.1"),
    ({"evaluations": 0}, "evaluations is 0: give at least 1"),
    ({"evaluations": -1}, "evaluations is -1"),
    ({"evaluations": 10, "eval_strategy": "epoch"}, "give only one of them"),
    ({"early_stopping_patience": 0}, "early_stopping_patience is 0"),
    ({"max_grad_norm_per_tensor": 0.0, "bias_correction": False, "max_grad_norm": 0.0}, "give a positive norm"),
    (
        {"max_grad_norm_per_tensor": float("nan"), "bias_correction": False, "max_grad_norm": 0.0},
        "give a positive norm",
    ),
    ({"layer_decay": None}, "layer_decay is None: give a value of type float"),
    ({"layer_decay": "0.9"}, "layer_decay is '0.9': give a value of type float"),
    ({"unfreezing": None}, "unfreezing is None"),
    ({"unfreeze_every": None}, "unfreeze_every is None"),
    ({"evaluations": "10"}, "evaluations is '10': give a value of type int or None"),
    ({"reinit_layers": 1.5}, "reinit_layers is 1.5"),
    ({"reinit_layers": True}, "reinit_layers is True"),
    ({"bias_correction": "yes"}, "bias_correction is 'yes'"),
    ({"head_learning_rate": float("inf")}, "head_learning_rate is inf"),
    ({"lr_schedule": "slanted_triangular", "stlr_ratio": float("inf")}, "stlr_ratio is inf"),
    ({"learning_rate": float("nan")}, "learning_rate is nan: give a number from 0 to 1e+09"),
    ({"weight_decay": -0.1}, "weight_decay is -0.1"),
    ({"num_train_epochs": 1e308}, "num_train_epochs is 1e+308"),
    ({"max_steps": 10**12}, "max_steps is 1000000000000: give a number from -1 to 1e+09"),
    ({"per_device_train_batch_size": 0}, "per_device_train_batch_size is 0: give a number from 1"),
    ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps is 0"),
    ({"eval_accumulation_steps": 0}, "eval_accumulation_steps is 0"),
    ({"seed": -1}, "seed is -1: give a number from 0"),
    ({"label_smoothing_factor": 7}, "label_smoothing_factor is 7: give a number from 0 to 1"),
    ({"neftune_noise_alpha": float("nan")}, "neftune_noise_alpha is nan"),
]


@pytest.mark.parametrize(("values", "message"), BAD, ids=[str(values) for values, _ in BAD])
def test_bad_values_are_refused(tmp_path, values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(tmp_path, **values)
