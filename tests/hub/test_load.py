"""What was pushed loads anywhere, with equal weights."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_ftstrategies
from hf_ftstrategies.hub.push import push_folder
from tests.hub import client, load_elsewhere

KINDS = {
    "stock": "BertForSequenceClassification",
    "encoder": "EncoderClassifier",
    "multitask": "MultiTaskClassifier",
    "awd_lstm": "AwdLstmForSequenceClassification",
}
ENCODER = ("--layers", "0,2", "--layer_pooling", "mean", "--token_pooling", "mean")


@pytest.fixture(scope="module")
def pushed(hub_and_client, tmp_path_factory):
    """Runs of all kinds, pushed; the stock one again after its weights have changed. Folders, revisions, and what
    another process found."""
    pool = hub_and_client[1]

    def run(*call):
        return pool.submit(*call).result(timeout=300)

    folders, revisions = {}, {}
    for name in KINDS:
        root = tmp_path_factory.mktemp(name)
        options = {
            "encoder": ENCODER,
            "multitask": ("--multitask", f"{root / 'topics.csv'},{root / 'other.csv'}"),
            "awd_lstm": ("--model", root / "awd_lstm"),
        }
        assert run(client.tiny_recipe, root, *options.get(name, ()))[0] == 0
        folders[name] = root / "out" / ("multitask" if name == "multitask" else "")
        revisions[name] = run(push_folder, folders[name], f"user/{name}").oid
    weights = load_file(folders["stock"] / "model.safetensors")
    logits = logits_of(folders["stock"])
    weights["classifier.bias"] += 1
    save_file(weights, folders["stock"] / "model.safetensors", {"format": "pt"})
    revisions["newer"] = run(push_folder, folders["stock"], "user/stock").oid
    done = subprocess.run(
        [sys.executable, load_elsewhere.__file__, revisions["stock"]],
        env=run(client.environment),
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folders, revisions, {**json.loads(done.stdout.splitlines()[-1]), "older": logits}


def logits_of(folder):
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    return load_elsewhere.logits(model, AutoTokenizer.from_pretrained(folder))


@pytest.mark.parametrize(("name", "kind"), KINDS.items(), ids=KINDS)
def test_without_the_package(pushed, name, kind):
    folders, _, elsewhere = pushed
    found, expected = elsewhere[f"user/{name}"], torch.tensor(logits_of(folders[name]))
    assert found["class"] == kind
    torch.testing.assert_close(torch.tensor(found["logits"]), expected, rtol=0, atol=1e-6)
    labels = json.loads((folders[name] / "config.json").read_text())["id2label"]
    assert found["pipeline"] == [labels[str(index)] for index in expected.argmax(-1).tolist()]


def test_a_pinned_revision_stays(pushed):
    _, revisions, elsewhere = pushed
    assert revisions["newer"] != revisions["stock"]
    assert elsewhere["pinned"] == elsewhere["older"]
    assert elsewhere["user/stock"]["logits"] != elsewhere["older"]


def test_our_code_runs_only_where_it_is_trusted(pushed):
    assert "trust_remote_code=True" in pushed[2]["untrusted"]


@pytest.mark.parametrize("name", [name for name in KINDS if name != "stock"])
def test_with_the_package(pushed, hub_and_client, name):
    model = hub_and_client[1].submit(client.load_with_the_package, f"user/{name}").result(timeout=300)
    saved = load_file(pushed[0][name] / "model.safetensors")
    assert model["class"] == getattr(hf_ftstrategies, KINDS[name]).__module__
    assert model["weights"].keys() == saved.keys()
    assert all((model["weights"][key] == saved[key].numpy()).all() for key in saved)


def test_training_goes_on_from_what_was_published(pushed, hub_and_client, tmp_path):
    losses = hub_and_client[1].submit(client.train_further, "user/stock", tmp_path).result(timeout=300)
    assert losses[-1] < losses[0]
