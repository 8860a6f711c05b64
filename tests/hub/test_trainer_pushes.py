"""The Trainer's own pushes during training, as a library user turns them on, carry the state of the strategies."""

import numpy as np

from tests.hub import client


def test_a_training_goes_on_elsewhere_from_the_hub_to_equal_bits(hub, run, tmp_path):
    losses, weights = run(client.train_straight, tmp_path / "straight")
    resumed_losses, resumed_weights = run(client.train_in_two_places, tmp_path, 7)
    files = hub.store.files("user/run", "main")
    assert {"last-checkpoint/strategies.json", "last-checkpoint/optimizer.pt"} < set(files)
    assert resumed_losses == losses
    assert weights.keys() == resumed_weights.keys()
    for name in weights:
        np.testing.assert_array_equal(resumed_weights[name], weights[name])


def test_a_training_survives_pushes_that_fail(hub, run, tmp_path):
    hub.fail("commit", 500, times=1000)
    hub.fail("preupload", 403, times=1000)
    assert run(client.train_and_survive, tmp_path) == 12
    assert hub.routes().count("preupload") > 0
    assert set(hub.store.files("user/run", "main")) == {".gitattributes"}


def test_an_adapter_is_pushed_as_an_adapter(hub, run, tmp_path):
    trained, loaded = run(client.train_and_push_adapter, tmp_path)
    np.testing.assert_allclose(loaded, trained, rtol=0, atol=1e-6)
    files = set(hub.store.files("user/adapter", "main"))
    assert {"adapter_model.safetensors", "adapter_config.json"} < files
    assert "model.safetensors" not in files
