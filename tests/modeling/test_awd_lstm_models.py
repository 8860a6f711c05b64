"""AWD-LSTM as a Transformers model: depths, saved and loaded with and without this package, trained by strategies."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    DataCollatorForLanguageModeling,
)

from hf_ftstrategies import (
    AwdLstmConfig,
    AwdLstmForCausalLM,
    AwdLstmForSequenceClassification,
    LayerMap,
    StrategyTrainer,
)
from hf_ftstrategies.modeling.awd_lstm import AwdLstmModel
from tests.hub.client import environment
from tests.modeling import load_awd_lstm
from tests.modeling.awd_lstm import SIZES, batch, tiny, word_tokenizer
from tests.tiny import LABELS, StopAt, arguments, equal, rows, snapshot

# --- Depth, saving and loading ---


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("cls", [AwdLstmForCausalLM, AwdLstmForSequenceClassification])
def test_layer_map(cls, layers):
    model = tiny(cls, num_hidden_layers=layers)
    layer_map = LayerMap.from_model(model)
    assert layer_map.blocks == list(model.encoder.layers)
    for name, _ in model.named_parameters():
        within = name.startswith("encoder.")
        depth = 1 + int(name.split(".")[2]) if ".layers." in name else 0 if within else layers + 1
        assert layer_map.depth_of(name) == depth
    assert {layer.hidden_size for layer in model.encoder.layers[:-1]} <= {7}
    assert model.encoder.layers[-1].hidden_size == 6


@pytest.mark.parametrize(
    ("cls", "auto"),
    [
        (AwdLstmModel, AutoModel),
        (AwdLstmForCausalLM, AutoModelForCausalLM),
        (AwdLstmForSequenceClassification, AutoModelForSequenceClassification),
    ],
)
def test_auto_classes_load_what_was_saved(tmp_path, cls, auto):
    model = tiny(cls, hidden_dropout=0.25)
    model.save_pretrained(tmp_path)
    loaded = auto.from_pretrained(tmp_path, dtype=torch.float64)
    assert type(loaded) is cls
    assert equal(snapshot(loaded), snapshot(model))
    assert AutoConfig.from_pretrained(tmp_path).hidden_dropout == 0.25
    assert {path.name for path in tmp_path.glob("*.py")} == {
        "awd_lstm.py",
        "awd_lstm_config.py",
        "awd_lstm_layers.py",
        "heads.py",
    }


def test_a_classifier_from_a_language_model(tmp_path):
    language_model = tiny(AwdLstmForCausalLM)
    language_model.save_pretrained(tmp_path)
    settings = {"num_labels": 5, "weight_dropout": 0.25, "dtype": torch.float64}
    torch.manual_seed(0)
    model, info = AwdLstmForSequenceClassification.from_pretrained(tmp_path, **settings, output_loading_info=True)
    assert equal(snapshot(model.encoder), snapshot(language_model.encoder))
    assert {name.split(".")[0] for name in info["missing_keys"]} == {"classifier"}
    assert [layer.weight_dropout for layer in model.encoder.layers] == [0.25] * 3
    assert model.classifier.out_proj.weight.shape == (5, 5)
    assert model.classifier.dense.weight.abs().max().item() == pytest.approx(18**-0.5, rel=0.1)
    assert model.classifier.norm.weight.eq(1).all()
    assert model.classifier.norm.running_var.eq(1).all()
    torch.manual_seed(1)
    other = AwdLstmForSequenceClassification.from_pretrained(tmp_path, **settings)
    assert not torch.equal(other.classifier.dense.weight, model.classifier.dense.weight)
    assert model(**batch()).logits.isfinite().all()


def test_without_the_package(tmp_path):
    """Equal logits, and a pipeline, from the files in the folder."""
    folder = str(tmp_path / "model")
    tiny(AwdLstmForSequenceClassification).float().save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    done = subprocess.run(
        [sys.executable, load_awd_lstm.__file__, folder],
        env={**environment(), "HF_MODULES_CACHE": str(tmp_path / "modules")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found, expected = json.loads(done.stdout.splitlines()[-1]), load_awd_lstm.found_in(folder)
    torch.testing.assert_close(torch.tensor(found["logits"]), torch.tensor(expected["logits"]), rtol=0, atol=1e-6)
    assert found["labels"] == [f"LABEL_{np.argmax(row)}" for row in expected["logits"]]
    assert found["module"] == "transformers_modules"


# --- Training ---


def test_a_language_model_is_trained(tmp_path):
    """Its perplexity falls; the collator pads, states do not disturb the evaluation."""
    ids = [[*range(5, 5 + length)] for length in (3, 9, 6, 8)] * 6
    data = [{"input_ids": row} for row in ids]
    settings = {"gradient_accumulation_steps": 2, "num_train_epochs": 6, "lr_schedule": "slanted_triangular"}
    torch.manual_seed(0)
    trainer = StrategyTrainer(
        AwdLstmForCausalLM(AwdLstmConfig(**SIZES)),
        arguments(tmp_path, **settings, layer_decay=1 / 2.6, learning_rate=3e-2),
        train_dataset=data,
        eval_dataset=data[:7],
        data_collator=DataCollatorForLanguageModeling(word_tokenizer(), mlm=False),
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before - 0.2


ULMFIT = {
    "layer_decay": 1 / 2.6,
    "lr_schedule": "slanted_triangular",
    "unfreezing": "gradual",
    "unfreeze_every": 1,
    "max_steps": 7,
    "save_strategy": "steps",
    "save_steps": 1,
    "weight_decay": 0.01,
}


def train(folder, model, resume=None, stop=None, **settings):
    trainer = StrategyTrainer(
        model,
        arguments(folder, **settings),
        train_dataset=rows(24, length=10),
        eval_dataset=rows(7, length=10),
        callbacks=[StopAt(stop)] if stop else [],
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"reinit_layers": 1},
        {"pretrained_weight_decay": 0.1},
        {"gradient_accumulation_steps": 2, "unfreezing": "ulmfit"},
        {"self_distillation": "sda", "teacher_size": 2},
    ],
    ids=str,
)
def test_trains_with_strategies_and_resumes_to_equal_bits(tmp_path, more):
    def loaded():  # as users have it: weights with the marks of from_pretrained
        return AwdLstmForSequenceClassification.from_pretrained(tmp_path / "start", num_labels=LABELS)

    torch.manual_seed(0)
    AwdLstmForCausalLM(AwdLstmConfig(**SIZES)).save_pretrained(tmp_path / "start")
    start = loaded()
    start.save_pretrained(tmp_path / "start")
    settings = {**ULMFIT, **more}
    straight = train(tmp_path / "straight", loaded(), **settings)
    train(tmp_path / "cut", loaded(), stop=3, **settings)
    resumed = train(tmp_path / "cut", loaded(), resume=True, **settings)
    assert straight.state.global_step == 7
    assert equal(snapshot(straight.model), snapshot(resumed.model))
    before = snapshot(start)
    assert all(not torch.equal(tensor, before[name]) for name, tensor in snapshot(straight.model).items())
    assert straight.evaluate()["eval_loss"] > 0
    saved = {path.name for path in (tmp_path / "cut" / "checkpoint-7").iterdir()}
    assert {"awd_lstm.py", "awd_lstm_config.py", "awd_lstm_layers.py", "heads.py"} <= saved


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_depths_join_one_after_the_other(tmp_path, steps):
    def fresh():
        torch.manual_seed(0)
        return AwdLstmForSequenceClassification(AwdLstmConfig(**SIZES))

    trainer = train(tmp_path, fresh(), stop=steps, **ULMFIT)
    before = snapshot(fresh())
    for depth in range(5):
        for name, parameter in trainer.layer_map.parameters_at(depth).items():
            assert torch.equal(parameter, before[name]) == (depth < 5 - steps)


def test_norms_and_biases_do_not_decay(tmp_path):
    model = tiny(AwdLstmForSequenceClassification)
    trainer = StrategyTrainer(model, arguments(tmp_path))
    matrices = [name for name, parameter in model.named_parameters() if parameter.dim() > 1]
    assert trainer.get_decay_parameter_names(model) == matrices


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mixout": 0.5}, "mixout mixes nn.Linear layers, but WeightDropLSTM has none"),
        ({"self_ensemble": "se"}, "averages parameters, but the model has 2 BatchNorm1d modules"),
    ],
)
def test_strategies_that_do_not_fit_say_so(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        train(tmp_path, tiny(AwdLstmForSequenceClassification), **settings)
