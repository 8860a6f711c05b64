import pytest

from hf_ftstrategies.pipeline.publish import take_destination, without_token
from tests.tiny import arguments


@pytest.mark.parametrize(
    "given", [["--hub_token", "hf_x"], ["--hub_token=hf_x"], ["--hub-token", "hf_x"], ["--hub-token=hf_x"], []]
)
def test_a_command_line_is_shown_without_its_token(given):
    assert without_token(["--seed", "1", *given, "--x"]) == ["--seed", "1", "--x"]
    assert without_token(["--hub_token"]) == []


def test_the_trainer_gets_neither_push_nor_token(tmp_path):
    given = {"hub_model_id": "user/name", "hub_token": "hf_x", "hub_private_repo": True}
    rest, destination = take_destination(arguments(tmp_path, push_to_hub=True, **given))
    assert (rest.push_to_hub, rest.hub_token) == (False, None)
    assert (destination.repo_id, destination.private, destination.token) == ("user/name", True, "hf_x")
    assert "hf_x" not in repr(destination)
    assert take_destination(arguments(tmp_path, **given))[1] is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "--hub_model_id"),
        ({"hub_model_id": "a/b", "hub_strategy": "checkpoint"}, "'checkpoint', but a recipe pushes no checkpoints"),
        ({"hub_model_id": "a/b", "hub_revision": "dev"}, "hub_revision is 'dev'"),
    ],
)
def test_refuses(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        take_destination(arguments(tmp_path, push_to_hub=True, **given))
