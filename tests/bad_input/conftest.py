"""What all bad input is tried on: a good model and good data, away from the Hub."""

import datasets
import huggingface_hub
import pytest

from tests.pipeline.tiny_run import csv_file, pretrained


@pytest.fixture(scope="package")
def base(tmp_path_factory):
    """A folder with a good model and good data, which no case may change."""
    folder = tmp_path_factory.mktemp("base")
    pretrained(folder / "model")
    csv_file(folder / "topics.csv")
    (folder / "folder.yaml").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _nowhere(tmp_path, monkeypatch):
    """An empty working directory, and no way to the Hub."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
