import json

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from torch import nn
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

from hf_ftstrategies import EncoderClassifier, EncoderClassifierConfig
from hf_ftstrategies.evaluation.ensembles import average_models, load_trained, vote
from tests.tiny import snapshot, tiny_bert

LOGITS = [np.random.default_rng(seed).normal(scale=4, size=(50, 3)).astype(np.float32) for seed in range(4)]


def test_vote_is_the_mean_of_the_probabilities():
    np.testing.assert_allclose(softmax(vote(LOGITS), -1), np.mean([softmax(one, -1) for one in LOGITS], 0), atol=1e-6)
    voted = vote(LOGITS, "classes")
    expected = np.mean([expit(one) for one in LOGITS], 0)
    np.testing.assert_allclose(expit(voted), expected, atol=1e-6)
    assert np.array_equal(voted > 0, expected > 0.5)
    np.testing.assert_allclose(vote(LOGITS, "number"), np.mean(LOGITS, 0), atol=1e-6)


def test_vote_of_one_is_itself_and_extremes_stay_finite():
    np.testing.assert_allclose(vote(LOGITS[:1], "classes"), LOGITS[0], atol=1e-6)
    np.testing.assert_allclose(softmax(vote(LOGITS[:1]), -1), softmax(LOGITS[0], -1), atol=1e-6)
    for kind in ("class", "classes"):
        assert np.isfinite(vote([np.array([[1e4, -1e4]]), np.array([[-1e4, 1e4]])], kind)).all()


@pytest.mark.parametrize(
    ("logits", "kind", "message"),
    [
        ([], "class", "A vote needs logits"),
        ([np.zeros((2, 3)), np.zeros((2, 2))], "class", r"got \[\(2, 3\), \(2, 2\)\]"),
        ([np.zeros(2)], "class", "A vote needs logits"),
        (LOGITS, "label", "label_kind is 'label'"),
    ],
)
def test_vote_refuses(logits, kind, message):
    with pytest.raises(ValueError, match=message):
        vote(logits, kind)


@pytest.fixture
def folders(tmp_path):
    """Three models of one configuration."""
    for seed in range(3):
        tiny_bert(seed=seed).save_pretrained(tmp_path / str(seed))
    return [tmp_path / str(seed) for seed in range(3)]


def test_average_is_the_mean_of_the_parameters(folders):
    model = average_models(folders)
    assert type(model) is BertForSequenceClassification
    assert not model.training
    originals = [snapshot(tiny_bert(seed=seed)) for seed in range(3)]
    for name, found in snapshot(model).items():
        expected = torch.stack([one[name].double() for one in originals]).mean(0)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-8)


def test_average_of_a_model_with_itself(folders):
    assert all(
        torch.equal(a, b) for a, b in zip(average_models([folders[0]] * 4).parameters(), tiny_bert().parameters())
    )


def test_average_of_half_precision_is_summed_in_double(tmp_path, folders):
    for folder in folders:
        load_trained(folder).to(torch.bfloat16).save_pretrained(folder)
    model = average_models(folders)
    expected = torch.stack([load_trained(f).classifier.weight.double() for f in folders]).mean(0)
    assert torch.equal(model.classifier.weight, expected.to(torch.bfloat16))


def test_average_of_encoder_classifiers(tmp_path):
    for seed in (0, 1):
        torch.manual_seed(seed)
        text_config = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20)
        config = EncoderClassifierConfig(text_config=text_config, token_pooling="mean", num_labels=3)
        EncoderClassifier(config).save_pretrained(tmp_path / str(seed))
    model = average_models([tmp_path / "0", tmp_path / "1"])
    model.save_pretrained(tmp_path / "mean")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "mean")
    torch.testing.assert_close(snapshot(loaded), snapshot(model))


def change(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def test_labels_in_another_order_are_shown(folders):
    for folder, names in zip(folders, ("abc", "abc", "acb")):
        change(folder, id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)})
    with pytest.raises(ValueError, match=r"id2label: \{0: 'a', 1: 'b', 2: 'c'\} and \{0: 'a', 1: 'c', 2: 'b'\}"):
        average_models(folders)


def test_average_refuses(tmp_path, folders):
    tiny_bert(layers=2).save_pretrained(tmp_path / "small")
    with pytest.raises(ValueError, match="num_hidden_layers: 3 and 2"):
        average_models([folders[0], tmp_path / "small"])
    with pytest.raises(ValueError, match="at least 2 models, got 1"):
        average_models(folders[:1])
    with pytest.raises(ValueError, match=r"'.*' holds no model"):
        average_models([folders[0], tmp_path])
    change(folders[1], architectures=["BertForTokenClassification"])
    with pytest.raises(ValueError, match=r"architectures: \['BertForSequenceClassification'\] and"):
        average_models(folders)
    change(folders[1], architectures=["MyOwnBert"])
    with pytest.raises(ValueError, match="of class 'MyOwnBert', which Transformers does not have"):
        load_trained(folders[1])


def test_running_statistics_are_refused(folders, monkeypatch):
    class Normed(BertForSequenceClassification):
        def __init__(self, config):
            super().__init__(config)
            self.norm = nn.BatchNorm1d(3)

    for index, folder in enumerate(folders):
        model = Normed(tiny_bert().config)
        model.norm.running_mean += index
        model.save_pretrained(folder)
        change(folder, architectures=["BertForSequenceClassification"])
    monkeypatch.setattr("transformers.BertForSequenceClassification", Normed)
    with pytest.raises(ValueError, match=r"'norm\.running_mean' of .* do not belong to averaged parameters"):
        average_models(folders)
