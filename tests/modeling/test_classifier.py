"""EncoderClassifier: every pooling as written down with plain loops over the encoder's own outputs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from transformers import AutoModel, AutoModelForSequenceClassification, BertConfig

from hf_ftstrategies import EncoderClassifier, EncoderClassifierConfig, LayerMap, StrategyTrainer
from hf_ftstrategies.data.chunking import ChunkCollator
from hf_ftstrategies.modeling.classifier import CHOICES, select_blocks
from tests.data.tiny import bert as bert_tokenizer
from tests.modeling.architectures import TINY_CONFIGS, tiny_inputs
from tests.tiny import StopAt, arguments, equal, rows, snapshot

SIZES = {"attention_size": 6, "lstm_size": 5, "attention_hops": 2}
ROOT = Path(__file__).parents[2]


def classifier(name="bert", seed=0, **settings):
    """A tiny classifier in evaluation mode, its head with larger weights than usual, so that all shows."""
    torch.manual_seed(seed)
    config = EncoderClassifierConfig(**{"text_config": TINY_CONFIGS[name](), "num_labels": 3, **SIZES, **settings})
    model = EncoderClassifier(config).eval()
    for key, parameter in model.named_parameters():
        if not key.startswith("encoder."):
            torch.nn.init.normal_(parameter, std=0.5)
    return model


def inputs(batch=4, length=10, padding_side="right"):
    torch.manual_seed(1)
    given = {name: tensor for name, tensor in tiny_inputs(batch, length).items() if name != "labels"}
    return given if padding_side == "right" else {name: tensor.flip(1) for name, tensor in given.items()}


def hidden_states(model, given):
    """Outputs of the blocks, bottom to top."""
    with torch.no_grad():
        return model.encoder(**given, output_hidden_states=True).hidden_states[1:]


def pooled(hidden, mask, how):
    """One text after the other."""
    vectors = []
    for states, real in zip(hidden, mask.bool(), strict=True):
        tokens = states[real]
        mean, largest = tokens.mean(0), tokens.max(0).values
        vectors.append(
            {"cls": tokens[0], "mean": mean, "max": largest, "concat": torch.cat([tokens[-1], largest, mean])}[how]
        )
    return torch.stack(vectors)


def attention(module, vectors):
    """Lin et al. 2017, equations 5 to 7, of one matrix (n, size)."""
    weights = (module.scores.weight @ torch.tanh(module.hidden.weight @ vectors.T)).softmax(1)
    return (weights @ vectors).flatten()


def combined(module, vectors, how):
    """`vectors` (n, size) of one text."""
    if how == "attention":
        return attention(module.attention, vectors)
    return {"concat": vectors.flatten(), "mean": vectors.mean(0), "max": vectors.max(0).values}[how]


def assert_close(a, b):
    assert a.shape == b.shape
    assert torch.allclose(a, b, atol=1e-5), (a - b).abs().max()


# --- Layers ---


@pytest.mark.parametrize(
    ("layers", "blocks"),
    [
        ("last", [5]),
        ("first4", [0, 1, 2, 3]),
        ("last4", [2, 3, 4, 5]),
        ("all", [0, 1, 2, 3, 4, 5]),
        (0, [0]),
        ([4, 1], [4, 1]),
    ],
)
def test_layers_count_blocks_from_zero(layers, blocks):
    assert select_blocks(layers, 6) == blocks


@pytest.mark.parametrize("how", CHOICES["layer_pooling"])
@pytest.mark.parametrize("layers", ["last", "all", 0, 1, [2, 0]])
def test_layers_are_those_of_the_encoder(layers, how):
    """Sun et al.: the raw [CLS] of each layer, then combined; also where blocks are cut."""
    model, given = classifier(layers=layers, layer_pooling=how), inputs()
    whole = classifier(layers="all")  # same seed, same encoder, no block cut
    states = hidden_states(whole, given)
    model.encoder.load_state_dict(whole.encoder.state_dict(), strict=False)
    blocks = select_blocks(layers, 3)
    by_text = [torch.stack([states[block][text, 0] for block in blocks]) for text in range(4)]
    if len(blocks) > 1:
        by_text = [combined(model.layer_pooling, vectors, how) for vectors in by_text]
    expected = model.classifier(torch.stack(by_text).flatten(1))
    assert_close(model(**given).logits, expected)


@pytest.mark.parametrize("name", ["bert", "distilbert", "albert", "modernbert", "gpt2"])
def test_blocks_above_the_highest_layer_are_gone(name):
    model = classifier(name, layers=[0, 1])
    assert len(hidden_states(model, inputs())) == model.config.text_config.num_hidden_layers == 2
    model.train()
    model(**inputs(), labels=torch.tensor([0, 1, 2, 0])).loss.backward()
    assert [key for key, p in model.named_parameters() if p.grad is None] == []
    assert TINY_CONFIGS[name]().num_hidden_layers == 3


# --- Tokens ---


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("how", CHOICES["token_pooling"])
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_token_pooling_leaves_padding_out(name, how, side):
    model, given = classifier(name, layers="all", layer_pooling="mean", token_pooling=how), inputs(padding_side=side)
    states = [pooled(layer, given["attention_mask"], how) for layer in hidden_states(model, given)]
    assert_close(model(**given).logits, model.classifier(torch.stack(states).mean(0)))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("how", ["concat", "attention"])
def test_bilstm_reads_each_text_alone(how, side):
    model, given = classifier(layers=[0, 2], layer_pooling=how, head="bilstm"), inputs(padding_side=side)
    layers = hidden_states(model, given)
    vectors = []
    for text, real in enumerate(given["attention_mask"].bool()):
        tokens = [torch.stack([layers[block][text, place] for block in (0, 2)]) for place in real.nonzero().flatten()]
        tokens = torch.stack([combined(model.layer_pooling, layers_of_token, how) for layers_of_token in tokens])
        vectors.append(attention(model.bilstm.attention, model.bilstm.lstm(tokens[None])[0][0]))
    assert_close(model(**given).logits, model.classifier(torch.stack(vectors)))


def test_no_mask_means_no_padding():
    given = inputs(batch=1)
    assert given["attention_mask"].all()
    for settings in ({"token_pooling": "mean"}, {"head": "bilstm"}):
        model = classifier(**settings)
        assert_close(model(**given).logits, model(given["input_ids"]).logits)
        embeddings = model.get_input_embeddings()(given["input_ids"])
        assert_close(model(**given).logits, model(inputs_embeds=embeddings).logits)


# --- Chunks ---


@pytest.mark.parametrize("head", CHOICES["head"])
@pytest.mark.parametrize("how", ["mean", "max", "attention"])
def test_chunks_equal_each_text_alone(how, head):
    """All chunks of a batch in one run of the encoder = a plain loop over texts and chunks, without padding."""
    model = classifier(chunk_pooling=how, head=head)
    texts = [[[1, 5, 6, 7, 2], [1, 8, 2]], [[1, 9, 2]], [[1, 5, 9, 2], [1, 4, 2], [1, 4, 5, 6, 2]]]
    batch = ChunkCollator(bert_tokenizer())([{"input_ids": chunks} for chunks in texts])

    vectors = []
    for chunks in texts:
        of_text = []
        for chunk in chunks:
            states = hidden_states(model, {"input_ids": torch.tensor([chunk])})[-1][0]
            if head == "bilstm":
                states = attention(model.bilstm.attention, model.bilstm.lstm(states[None])[0][0])[None]
            of_text.append(states[0])
        vectors.append(combined(model.chunk_pooling, torch.stack(of_text), how))
    assert_close(model(**batch).logits, model.classifier(torch.stack(vectors)))


def test_texts_without_counts_are_one_chunk_each():
    model, given = classifier(chunk_pooling="attention"), inputs()
    assert_close(model(**given).logits, model(**given, chunk_counts=torch.ones(4, dtype=torch.long)).logits)


# --- Loss ---


@pytest.mark.parametrize(
    ("settings", "labels", "loss", "problem"),
    [
        ({"num_labels": 3}, torch.tensor([0, 2, 1, 1]), cross_entropy, "single_label_classification"),
        ({"num_labels": 3}, torch.rand(4, 3).round(), binary_cross_entropy_with_logits, "multi_label_classification"),
        ({"num_labels": 1}, torch.rand(4, 1), mse_loss, "regression"),
        ({"num_labels": 2, "problem_type": "regression"}, torch.rand(4, 2), mse_loss, "regression"),
    ],
)
def test_loss_by_problem_type(settings, labels, loss, problem):
    model = classifier(**settings)
    output = model(**inputs(), labels=labels)
    assert torch.equal(output.loss, loss(output.logits, labels))
    assert model.config.problem_type == problem
    assert isinstance(model(**inputs(), labels=labels, return_dict=False), tuple)


# --- The model as Transformers sees it ---

COMBINATIONS = [
    {"layers": "all", "layer_pooling": "attention", "token_pooling": "concat", "chunk_pooling": "attention"},
    {"layers": [0, 1], "head": "bilstm", "chunk_pooling": "max"},
    {"layers": 1, "head": "mlp", "token_pooling": "mean"},
]


def run_python(script, folder):
    """Run in a clean process and return what it prints last, as JSON."""
    environment = {"PATH": "", "HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "error", "-c", script]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


WITH_PACKAGE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import hf_ftstrategies.modeling.classifier
options = {{}}
"""
WITHOUT_PACKAGE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'hf_ftstrategies':
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
options = {'trust_remote_code': True}
"""
CLASSIFY = """
import json, torch
from transformers import AutoModelForSequenceClassification
if options:
    try:
        AutoModelForSequenceClassification.from_pretrained('.', trust_remote_code=False)
        raise SystemExit('loaded without trust')
    except ValueError as error:
        assert 'trust_remote_code' in str(error)
model = AutoModelForSequenceClassification.from_pretrained('.', **options)
model.save_pretrained('again')
assert sorted(path.name for path in __import__('pathlib').Path('again').glob('*.py')) == ['classifier.py', 'heads.py']
logits = model(torch.tensor([[1, 5, 6, 2], [1, 7, 8, 2]]), chunk_counts=torch.tensor([2])).logits
print(json.dumps([type(model).__name__, logits.tolist()]))
"""


@pytest.mark.parametrize("prelude", [WITH_PACKAGE, WITHOUT_PACKAGE], ids=["package", "trust_remote_code"])
def test_a_saved_model_loads_in_a_clean_process(tmp_path, prelude):
    model = classifier(**COMBINATIONS[1])
    model.save_pretrained(tmp_path)
    name, logits = run_python(prelude + CLASSIFY, tmp_path)
    expected = model(torch.tensor([[1, 5, 6, 2], [1, 7, 8, 2]]), chunk_counts=torch.tensor([2])).logits
    assert name == "EncoderClassifier"
    assert_close(torch.tensor(logits), expected)


def test_importing_the_package_stays_light():
    script = "import sys, hf_ftstrategies; assert not {'torch', 'transformers'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", ["bert", "distilbert", "modernbert"])
@pytest.mark.parametrize("settings", COMBINATIONS)
def test_round_trip(tmp_path, name, settings):
    model = classifier(name, **settings, id2label={0: "a", 1: "b", 2: "c"})
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is EncoderClassifier
    assert equal(snapshot(model), snapshot(loaded))
    assert torch.equal(model(**inputs()).logits, loaded(**inputs()).logits)
    assert loaded.config.id2label == {0: "a", 1: "b", 2: "c"}
    for key in (*settings, *SIZES, *CHOICES):
        assert getattr(loaded.config, key) == getattr(model.config, key)


def test_resized_embeddings_are_saved(tmp_path):
    model = classifier()
    model.resize_token_embeddings(120)
    model.save_pretrained(tmp_path)
    assert EncoderClassifier.from_pretrained(tmp_path).get_input_embeddings().weight.shape == (120, 32)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert"])
def test_from_encoder_keeps_the_weights(tmp_path, name):
    encoder = AutoModel.from_config(TINY_CONFIGS[name]()).eval()
    encoder.save_pretrained(tmp_path)
    model = EncoderClassifier.from_encoder(tmp_path, layers=1, num_labels=5)
    with torch.no_grad():
        states = encoder(**inputs(), output_hidden_states=True).hidden_states[2]
        states = encoder.final_norm(states) if name == "modernbert" else states
    assert_close(model.encode(**inputs())[0][:, 0, 0], states[:, 0])
    assert model.classifier.weight.shape == (5, 32)
    assert model.classifier.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert not model.classifier.bias.any()
    assert not any("pooler" in key for key in model.state_dict())
    assert str(tmp_path) not in model.config.to_json_string()
    assert model.config.name_or_path == str(tmp_path)


def test_a_half_precision_encoder_gets_a_head_of_its_type(tmp_path):
    AutoModel.from_config(TINY_CONFIGS["bert"]()).bfloat16().save_pretrained(tmp_path)
    model = EncoderClassifier.from_encoder(tmp_path, head="bilstm", chunk_pooling="attention", **SIZES)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model(**inputs()).logits.dtype == torch.bfloat16


@pytest.mark.parametrize("settings", COMBINATIONS)
def test_mixed_precision(settings):
    model = classifier(**settings)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(**inputs(), labels=torch.tensor([0, 1, 2, 0]))
    mixed.loss.backward()
    assert torch.allclose(mixed.logits.float(), model(**inputs()).logits, atol=0.3)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert"])
@pytest.mark.parametrize("settings", COMBINATIONS)
def test_layer_map(name, settings):
    model = classifier(name, **settings)
    layer_map = LayerMap.from_model(model)
    assert layer_map.num_blocks == model.config.text_config.num_hidden_layers
    assert layer_map.pooler is None
    for key, _ in model.named_parameters():
        outside = not key.startswith("encoder.")
        assert (layer_map.part_of(key) == "head") == outside
        assert (layer_map.depth_of(key) == layer_map.head_depth) == (outside or "final_norm" in key)
    assert [block in list(model.encoder.modules()) for block in layer_map.blocks] == [True] * layer_map.num_blocks


@pytest.mark.parametrize("settings", COMBINATIONS)
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_gradient_checkpointing_gives_the_same_gradients(name, settings):
    gradients = []
    for checkpointing in (False, True):
        model = classifier(name, **settings).train()
        if checkpointing:
            # transformers 5.17 has the old name only
            getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
            assert all(block.gradient_checkpointing for block in LayerMap.from_model(model).blocks)
        torch.manual_seed(2)
        model(**inputs(), labels=torch.tensor([0, 1, 2, 0])).loss.backward()
        gradients.append({key: p.grad for key, p in model.named_parameters()})
    assert equal(*gradients)


# --- Training ---

STRATEGIES = {
    "layer_decay": 0.9,
    "unfreezing": "gradual",
    "unfreeze_every": 1,
    "reinit_layers": 1,
    "lr_schedule": "slanted_triangular",
    "max_steps": 6,
    "save_strategy": "steps",
    "save_steps": 1,
}


def chunked_rows():
    """Rows of one to three chunks."""
    flat = rows(24, length=6)
    return [
        {"input_ids": [row["input_ids"].tolist()] * (1 + index % 3), "labels": row["labels"]}
        for index, row in enumerate(flat)
    ]


def train(folder, model, resume=None, stop=None, **settings):
    trainer = StrategyTrainer(
        model,
        arguments(folder, **settings),
        train_dataset=chunked_rows(),
        eval_dataset=chunked_rows()[:7],
        data_collator=ChunkCollator(bert_tokenizer()),
        callbacks=[StopAt(stop)] if stop else [],
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_trains_with_strategies_and_resumes_to_equal_bits(tmp_path):
    def loaded():  # as users have it: weights with the marks of from_pretrained
        return EncoderClassifier.from_pretrained(tmp_path / "start")

    classifier(chunk_pooling="attention", layers="all", layer_pooling="attention").save_pretrained(tmp_path / "start")
    straight = train(tmp_path / "straight", loaded(), **STRATEGIES)
    train(tmp_path / "cut", loaded(), stop=3, **STRATEGIES)
    resumed = train(tmp_path / "cut", loaded(), resume=True, **STRATEGIES)
    assert straight.state.global_step == 6
    assert equal(snapshot(straight.model), snapshot(resumed.model))
    start = snapshot(loaded())
    assert all(
        not torch.equal(tensor, start[key]) for key, tensor in snapshot(straight.model).items() if tensor.dim() > 1
    )
    assert straight.predict(chunked_rows()[:7]).predictions.shape == (7, 3)
    assert straight.evaluate()["eval_loss"] > 0


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_reinit_draws_as_the_encoder_does(tmp_path, name):
    torch.manual_seed(0)
    AutoModel.from_config(TINY_CONFIGS[name]()).save_pretrained(tmp_path)
    drawn = []
    for make in (AutoModelForSequenceClassification.from_pretrained, EncoderClassifier.from_encoder):
        trainer = StrategyTrainer(make(tmp_path), arguments(tmp_path / "out", reinit_layers=1), train_dataset=rows())
        trainer._prepare_model_once()
        drawn.append(trainer.layer_map.blocks[-1].state_dict())
    assert equal(*drawn)


# --- Bad settings ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": "frist4"}, r"layers is 'frist4', the encoder has 3 blocks. Did you mean 'first4'\? .* 0 to 2"),
        ({"layers": "last4"}, "layers is 'last4', the encoder has 3 blocks"),
        ({"layers": 3}, "layers is 3, the encoder has 3 blocks"),
        ({"layers": -1}, "layers is -1"),
        ({"layers": []}, r"layers is \[\]"),
        ({"layers": [0, 0]}, r"layers is \[0, 0\]"),
        ({"layers": None}, "layers is None"),
        ({"layers": True}, "layers is True"),
        ({"layer_pooling": "avg"}, "layer_pooling is 'avg'. Known: concat, mean, max, attention"),
        ({"token_pooling": "Mean"}, r"token_pooling is 'Mean'. Did you mean 'mean'\?"),
        ({"chunk_pooling": "atention"}, r"Did you mean 'attention'\?"),
        ({"chunk_pooling": None}, "chunk_pooling is None"),
        ({"head": "bi-lstm"}, r"head is 'bi-lstm'. Did you mean 'bilstm'\?"),
        ({"head": "bilstm", "token_pooling": "max"}, "leave token_pooling out"),
        ({"classifier_dropout": 1.0}, "classifier_dropout is 1.0"),
        ({"attention_hops": 0}, "attention_hops is 0"),
        ({"layer_poolin": "mean"}, r"no setting 'layer_poolin'. Did you mean 'layer_pooling'\?"),
        ({"text_config": {"model_type": "t5"}}, "of type 't5', which has no single stack"),
        ({"text_config": {"model_type": "clip"}}, "of type 'clip', which has no single stack"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        EncoderClassifierConfig(**{"text_config": TINY_CONFIGS["bert"](), **settings})


def test_settings_given_while_loading_are_checked_too(tmp_path):
    classifier().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="head is 'linaer'"):
        EncoderClassifier.from_pretrained(tmp_path, head="linaer")


def test_bad_settings_of_from_encoder(tmp_path):
    AutoModel.from_config(TINY_CONFIGS["bert"]()).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"no setting 'pooling_of_tokens'"):
        EncoderClassifier.from_encoder(tmp_path, pooling_of_tokens="mean")


@pytest.mark.parametrize(
    ("pooling", "counts", "message"),
    [
        ("none", [2, 2], "chunk_pooling is 'none'"),
        ("mean", [2, 1], "has 4 chunks, chunk_counts adds up to 3"),
    ],
)
def test_bad_chunk_counts(pooling, counts, message):
    with pytest.raises(ValueError, match=message):
        classifier(chunk_pooling=pooling)(**inputs(), chunk_counts=torch.tensor(counts))


def test_the_default_encoder_is_bert():
    assert isinstance(EncoderClassifierConfig().text_config, BertConfig)
