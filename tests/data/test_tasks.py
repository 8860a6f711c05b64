"""Task types: features, model settings, metrics and baselines fit together."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, EvalPrediction

from hf_ftstrategies.data.tasks import TASKS, get_task
from hf_ftstrategies.evaluation.scores import compute_metrics_for
from tests.data.tiny import bert


def described(text_columns=("text",), names=("a", "b", "c")):
    return SimpleNamespace(text_columns=text_columns, label_column="label", label_names=names)


TINY_BERT = BertConfig(vocab_size=104, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
LABELS = {
    "single_text": [2, 1, 2, 0],
    "text_pair": [2, 1, 2, 0],
    "regression": [1.0, 2.0, 3.0, 6.0],
    "multi_label": [[1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]],
}


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_trains_a_model_of_the_task(name, tmp_path):
    task = get_task(name)
    info = described(task.text_columns[-1])
    batch = {column: ["w1 w2 w3"] * 4 for column in info.text_columns} | {"label": LABELS[name]}
    features = task.features(batch, bert(), info, max_length=16, strategy="head")
    BertModel(TINY_BERT).save_pretrained(tmp_path)
    model = task.load_model(tmp_path, info)
    inputs = {name: torch.tensor(features[name]) for name in (*bert().model_input_names, "labels")}
    output = model(**inputs)
    baseline = task.baseline(LABELS[name], 4)
    assert np.isfinite(output.loss.item())
    assert output.logits.shape == baseline.shape
    scores = compute_metrics_for(task.metrics, info.label_names)(
        EvalPrediction(predictions=baseline, label_ids=np.array(LABELS[name]))
    )
    assert next(iter(scores)) == task.metric


def test_settings_name_the_labels():
    settings = get_task("single_text").model_settings(described())
    assert settings["id2label"] == {0: "a", 1: "b", 2: "c"}
    assert settings["label2id"] == {"a": 0, "b": 1, "c": 2}
    assert get_task("regression").model_settings(described()) == {
        "num_labels": 1,
        "problem_type": "regression",
    }


def test_baselines_know_only_the_label_frequencies():
    assert get_task("single_text").baseline([2, 1, 2, 0], 2).argmax(axis=1).tolist() == [2, 2]
    assert get_task("regression").baseline([1.0, 2.0, 6.0], 2).tolist() == [[3.0], [3.0]]
    assert (get_task("multi_label").baseline(LABELS["multi_label"], 1) > 0).tolist() == [[True, False, False]]


def test_features_without_labels():
    features = get_task("single_text").features({"text": ["w1"]}, bert(), described(), max_length=8, head=2)
    assert "labels" not in features


def test_unknown_task_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"'singel_text'. Did you mean 'single_text'\? Known: single_text, "):
        get_task("singel_text")
