"""MultiTaskClassifier: each task is answered as by a classifier of its own that shares the weights."""

import json
import subprocess
import sys

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, pipeline

from hf_ftstrategies import (
    EncoderClassifier,
    EncoderClassifierConfig,
    LayerMap,
    MultiTaskClassifier,
    MultiTaskClassifierConfig,
)
from tests.data.tiny import bert as bert_tokenizer
from tests.modeling.architectures import TINY_CONFIGS, tiny_inputs
from tests.tiny import equal, snapshot

# Neither in the order of the alphabet, nor all with less than ten labels: JSON sorts names and numbers as strings.
TASKS = {
    "topic": {"id2label": {0: "sport", 1: "trade", 2: "art"}},
    "intent": {"num_labels": 12},
    "score": {"num_labels": 1},
    "mood": {"num_labels": 4, "problem_type": "multi_label_classification"},
}
NAMES = list(TASKS)
ANSWERS = {
    "topic": torch.tensor([0, 2, 1, 1]),
    "intent": torch.tensor([11, 0, 3, 3]),
    "score": torch.tensor([0.5, -1.0, 2.0, 0.0]),
    "mood": torch.tensor([[0.0, 1.0, 1.0, 0.0]] * 4),
}
LOSSES = {
    "topic": cross_entropy,
    "intent": cross_entropy,
    "score": lambda logits, labels: mse_loss(logits[:, 0], labels),
    "mood": binary_cross_entropy_with_logits,
}
PROBLEMS = {
    "topic": "single_label_classification",
    "intent": "single_label_classification",
    "score": "regression",
    "mood": "multi_label_classification",
}
SETTINGS = [
    {},
    {"layers": [0, 1], "head": "bilstm", "chunk_pooling": "max", "lstm_size": 5, "attention_hops": 2},
    {"layers": 1, "head": "mlp", "token_pooling": "mean"},
]
WHOLE = {"layers": "all", "layer_pooling": "attention", "attention_size": 6}


def model_of(name="bert", tasks=TASKS, **settings):
    """In evaluation mode, its heads with larger weights than usual, so that all shows."""
    torch.manual_seed(0)
    model = MultiTaskClassifier(MultiTaskClassifierConfig(text_config=TINY_CONFIGS[name](), tasks=tasks, **settings))
    for key, parameter in model.named_parameters():
        if not key.startswith("encoder."):
            torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def alone(model, task, name="bert", **settings):
    """A classifier of one task with the same weights, made without the model's help."""
    labels = len(model.config.tasks[task]["id2label"])
    config = EncoderClassifierConfig(text_config=TINY_CONFIGS[name](), num_labels=labels, **settings)
    single = EncoderClassifier(config).eval()
    weights = {key.replace(f"heads.{task}", "classifier"): tensor for key, tensor in snapshot(model).items()}
    single.load_state_dict({key: tensor for key, tensor in weights.items() if not key.startswith("heads.")})
    return single


def inputs(task=None, seed=1, labelled=False):
    torch.manual_seed(seed)
    given = {key: tensor for key, tensor in tiny_inputs().items() if key != "labels"}
    named = {} if task is None else {"task_ids": torch.full((4,), NAMES.index(task))}
    return given | named | ({"labels": ANSWERS[task]} if labelled else {})


def gradients(model):
    return {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}


# --- Logits, loss, gradients ---


@pytest.mark.parametrize("name", ["bert", "modernbert"])
@pytest.mark.parametrize("settings", [*SETTINGS, WHOLE])
def test_each_task_is_answered_as_by_a_model_of_its_own(name, settings):
    model = model_of(name, **settings)
    for task in NAMES:
        single = alone(model, task, name, **settings)
        assert torch.equal(model(**inputs(task)).logits, single(**inputs()).logits)
    assert torch.equal(model(**inputs()).logits, model(**inputs("topic")).logits)


@pytest.mark.parametrize("task", NAMES)
def test_loss_by_problem_type_of_the_task(task):
    model = model_of(active_task="score")
    output = model(**inputs(task, labelled=True))
    assert torch.equal(output.loss, LOSSES[task](output.logits, ANSWERS[task]))
    settled = {name: model.config.tasks[name]["problem_type"] for name in NAMES}
    assert settled == {**dict.fromkeys(NAMES), "mood": PROBLEMS["mood"], task: PROBLEMS[task]}
    assert model.config.problem_type == settled["score"]
    assert isinstance(model(**inputs(task, labelled=True), return_dict=False), tuple)


@pytest.mark.parametrize("settings", SETTINGS)
def test_gradients_of_two_tasks_add_up(settings):
    model = model_of(**settings)
    expected = {}
    for task in ("intent", "score"):
        single = alone(model, task, **settings)
        LOSSES[task](single(**inputs(seed=len(task))).logits, ANSWERS[task]).backward()
        for key, gradient in gradients(single).items():
            key = key.replace("classifier", f"heads.{task}")
            expected[key] = expected[key] + gradient if key in expected else gradient
        model(**inputs(task, seed=len(task), labelled=True)).loss.backward()
    found = gradients(model)
    assert found.keys() == expected.keys()
    for key, gradient in found.items():
        torch.testing.assert_close(gradient, expected[key], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("settings", SETTINGS)
def test_idle_heads_stay_still(settings):
    model = model_of(**settings).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    before = snapshot(model)
    for task in ("topic", "mood", "topic"):
        model(**inputs(task, labelled=True)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    moved = {key for key, tensor in snapshot(model).items() if not torch.equal(tensor, before[key])}
    heads = {key.split(".")[1] for key in moved if key.startswith("heads.")}
    assert heads == {"topic", "mood"}
    assert all(p.grad is None for task in ("intent", "score") for p in model.heads[task].parameters())


@pytest.mark.parametrize(
    ("task_ids", "message"),
    [
        ([0, 1, 0, 0], r"rows of several tasks \(task_ids \[0, 1\]\).*train_sampling_strategy='sequential'"),
        ([4] * 4, "task_ids is 4, but the tasks are 0 to 3: topic, intent, score, mood"),
        ([-1] * 4, "task_ids is -1"),
    ],
)
def test_bad_task_ids(task_ids, message):
    with pytest.raises(ValueError, match=message):
        model_of()(**inputs(), task_ids=torch.tensor(task_ids))


# --- The model as Transformers sees it ---


@pytest.mark.parametrize("settings", SETTINGS)
def test_round_trip(tmp_path, settings):
    model = model_of(**settings)
    model(**inputs("score", labelled=True))  # settles a problem type
    model.save_pretrained(tmp_path)
    for task in NAMES:
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path, active_task=task)
        assert type(loaded) is MultiTaskClassifier
        assert equal(snapshot(loaded), snapshot(model))
        assert torch.equal(loaded(**inputs()).logits, model(**inputs(task)).logits)
        assert loaded.config.tasks == model.config.tasks
        assert list(loaded.config.tasks) == NAMES
        assert loaded.config.num_labels == len(model.config.tasks[task]["id2label"])
        assert loaded.config.problem_type == model.config.tasks[task]["problem_type"]
        assert AutoConfig.from_pretrained(tmp_path, active_task=task).id2label == loaded.config.id2label
    loaded.save_pretrained(tmp_path / "again")
    assert AutoConfig.from_pretrained(tmp_path / "again").active_task == "mood"
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path).config.active_task == "topic"


def test_labels_follow_the_active_task():
    config = model_of().config
    assert config.id2label == {0: "sport", 1: "trade", 2: "art"}
    assert config.label2id == {"sport": 0, "trade": 1, "art": 2}
    config.active_task = "mood"
    assert (config.num_labels, config.problem_type) == (4, "multi_label_classification")
    with pytest.raises(ValueError, match=r"no task 'intnt'. Did you mean 'intent'\? Tasks: topic, intent"):
        config.active_task = "intnt"


ELSEWHERE = r"""
import json, sys
sys.modules["hf_ftstrategies"] = None  # an import of it is an error
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
found = {}
for task in ("topic", "intent"):
    options = {"trust_remote_code": True, "active_task": task}
    model = AutoModelForSequenceClassification.from_pretrained(".", **options)
    batch = AutoTokenizer.from_pretrained(".")(TEXTS, padding=True, return_tensors="pt")
    classify = pipeline("text-classification", ".", trust_remote_code=True, model_kwargs={"active_task": task})
    single = model.for_task("score")
    single.save_pretrained(f"score_of_{task}")
    single = AutoModelForSequenceClassification.from_pretrained(f"score_of_{task}", trust_remote_code=True)
    with torch.no_grad():
        found[task] = [model(**batch).logits.tolist(), [answer["label"] for answer in classify(TEXTS)]]
        found["score"] = [single(**batch).logits.tolist(), [type(single).__name__]]
try:
    AutoModelForSequenceClassification.from_pretrained(".", trust_remote_code=False)
except ValueError as error:
    found["untrusted"] = str(error)
print(f"\n{json.dumps(found)}")  # after a question about trust
"""
TEXTS = ["w1 w2 w3 w4", "w31 w40 w50 w33 w41", "w70 w80"]


def test_a_saved_model_answers_without_the_package(tmp_path):
    model, tokenizer = model_of(layers="all", layer_pooling="mean"), bert_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    code = ["classifier.py", "heads.py", "multitask.py"]
    assert sorted(path.name for path in tmp_path.glob("*.py")) == code
    environment = {"PATH": "", "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "error", "-c", ELSEWHERE.replace("TEXTS", repr(TEXTS))]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    assert "trust_remote_code=True" in found["untrusted"]
    assert found["score"][1] == ["EncoderClassifier"]
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    for task in ("topic", "intent", "score"):
        logits = model(**batch, task_ids=torch.full((3,), NAMES.index(task))).logits
        torch.testing.assert_close(torch.tensor(found[task][0]), logits.detach(), rtol=0, atol=1e-6)
        labels = model.config.tasks[task]["id2label"]
        if task != "score":
            assert found[task][1] == [labels[index] for index in logits.argmax(-1).tolist()]
    classify = pipeline("text-classification", str(tmp_path), model_kwargs={"active_task": "intent"})
    assert [answer["label"] for answer in classify(TEXTS)] == found["intent"][1]


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_from_encoder_keeps_the_weights(tmp_path, name):
    encoder = AutoModel.from_config(TINY_CONFIGS[name]())
    encoder.save_pretrained(tmp_path)
    settings = {"layers": [0, 1], "layer_pooling": "mean"}
    model = MultiTaskClassifier.from_encoder(tmp_path, tasks=TASKS, active_task="intent", **settings)
    start = snapshot(encoder)
    assert all(torch.equal(tensor, start[key]) for key, tensor in snapshot(model.encoder).items())
    assert {task: head.out_features for task, head in model.heads.items()} == dict(zip(NAMES, (3, 12, 1, 4)))
    assert model.heads["intent"].weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert model(**inputs()).logits.shape == (4, 12)
    assert not model.training
    assert model.config.text_config.num_hidden_layers == 2
    assert str(tmp_path) not in model.config.to_json_string()


def test_a_half_precision_encoder_gets_heads_of_its_type(tmp_path):
    AutoModel.from_config(TINY_CONFIGS["bert"]()).bfloat16().save_pretrained(tmp_path)
    model = MultiTaskClassifier.from_encoder(tmp_path, tasks=TASKS)
    assert {p.dtype for p in (*model.parameters(), *model.for_task("mood").parameters())} == {torch.bfloat16}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", ["bert", "distilbert", "modernbert"])
def test_layer_map(name, settings):
    model = model_of(name, **settings)
    layer_map = LayerMap.from_model(model)
    assert layer_map.num_blocks == model.config.text_config.num_hidden_layers
    for key, _ in model.named_parameters():
        assert (layer_map.part_of(key) == "head") == (not key.startswith("encoder."))
    assert {layer_map.depth_of(key) for key, _ in model.named_parameters() if "heads." in key} == {layer_map.head_depth}


# --- One task of them ---


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("task", NAMES)
def test_for_task(tmp_path, task, settings):
    model = model_of(**settings)
    model.resize_token_embeddings(120)
    single = model.for_task(task)
    assert type(single) is EncoderClassifier
    assert not single.training
    assert torch.equal(single(**inputs()).logits, model(**inputs(task)).logits)
    assert single.config.id2label == model.config.tasks[task]["id2label"]
    assert single.config.problem_type == model.config.tasks[task]["problem_type"]

    single.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(loaded(**inputs()).logits, single(**inputs()).logits)
    before = snapshot(model)
    with torch.no_grad():
        for parameter in single.parameters():
            parameter += 1
    assert equal(snapshot(model), before)


def test_for_an_unknown_task():
    with pytest.raises(ValueError, match=r"no task 'topics'. Did you mean 'topic'\?"):
        model_of().for_task("topics")


# --- Bad settings ---


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (None, "tasks is None: give a dict"),
        ({}, r"tasks is \{\}"),
        (["a"], r"tasks is \['a'\]"),
        ({"": {"num_labels": 2}}, "No task can be called ''"),
        ({"a.b": {"num_labels": 2}}, r"No task can be called 'a\.b'"),
        ({"keys": {"num_labels": 2}}, "No task can be called 'keys'"),
        ({"training": {"num_labels": 2}}, "No task can be called 'training'"),
        ({3: {"num_labels": 2}}, "No task can be called 3"),
        ({"a": 3}, "Task 'a' is 3: give a dict with either id2label or num_labels"),
        ({"a": {}}, r"Task 'a' is \{\}"),
        ({"a": {"num_labels": 2, "id2label": {0: "x", 1: "y"}}}, "either id2label or num_labels"),
        ({"a": {"num_lables": 2}}, r"an entry 'num_lables'. Did you mean 'num_labels'\?"),
        ({"a": {"num_labels": 0}}, "num_labels of task 'a' is 0: give 1 or more"),
        ({"a": {"num_labels": True}}, "num_labels of task 'a' is True"),
        ({"a": {"num_labels": "2"}}, "num_labels of task 'a' is '2'"),
        ({"a": {"id2label": {1: "x", 2: "y"}}}, "id2label of task 'a' is .* names for 0, 1, and so on"),
        ({"a": {"id2label": {}}}, r"id2label of task 'a' is \{\}"),
        ({"a": {"id2label": ["x"]}}, r"id2label of task 'a' is \['x'\]"),
        (
            {"a": {"num_labels": 2, "problem_type": "regresion"}},
            r"problem_type of task 'a' is 'regresion'. Did you mean 'regression'\? Known: single_label",
        ),
        ({"a": {"num_labels": 1, "problem_type": "single_label_classification"}}, "Task 'a' has one label"),
        ({"a": {"num_labels": 2, "task_id": 1}}, r"task_id of the tasks are \{'a': 1\}: give 0 to 0"),
        ({"a": {"num_labels": 2}, "b": {"num_labels": 2, "task_id": 0}}, "each once, or none"),
    ],
)
def test_bad_tasks(tmp_path, tasks, message):
    with pytest.raises(ValueError, match=message):
        MultiTaskClassifierConfig(text_config=TINY_CONFIGS["bert"](), tasks=tasks)
    with pytest.raises(ValueError, match=message):  # before the encoder is looked for
        MultiTaskClassifier.from_encoder(tmp_path / "nowhere", tasks=tasks)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"active_task": "topics"}, r"no task 'topics'. Did you mean 'topic'\?"),
        ({"num_labels": 3}, "num_labels is given, but each task has its own"),
        ({"id2label": {0: "x"}}, r"id2label is \{0: 'x'\}, but task 'topic' has .* give it in tasks alone"),
        ({"problem_type": "regression"}, "problem_type is 'regression', but task 'topic' has None"),
        ({"task": "topic"}, r"no setting 'task'. Did you mean 'tasks'\?"),
        ({"head": "linaer"}, r"head is 'linaer'. Did you mean 'linear'\?"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        MultiTaskClassifierConfig(text_config=TINY_CONFIGS["bert"](), tasks=TASKS, **settings)


def test_bad_settings_while_loading(tmp_path):
    model_of().save_pretrained(tmp_path)
    for settings, message in (({"active_task": "tpic"}, "Did you mean 'topic'"), ({"num_labels": 3}, "each task has")):
        with pytest.raises(ValueError, match=message):
            AutoModelForSequenceClassification.from_pretrained(tmp_path, **settings)
    with pytest.raises(ValueError, match="problem_type is given, but each task has its own"):
        MultiTaskClassifier.from_encoder(tmp_path, tasks=TASKS, problem_type="regression")
