import gc

import datasets
import hypothesis
import pytest
import torch

torch.set_num_threads(1)  # tiny models: more threads only wait for each other
# The same examples on every machine, and none refused for being slow on a busy one.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_finish():
    """Every `Trainer.train` collects garbage; searching what the imports have made takes half a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _own_cache_and_no_data_root(tmp_path_factory, monkeypatch):
    """Keep the user's `datasets` cache and data root out of the tests."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets"))
    monkeypatch.delenv("HF_FTSTRATEGIES_DATA", raising=False)
