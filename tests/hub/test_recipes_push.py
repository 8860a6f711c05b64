"""Recipes with `--push_to_hub`, over HTTP."""

import json
import subprocess
import sys

import pytest

from tests.hub import client
from tests.pipeline.tiny_run import recipe

PUSH = ("--push_to_hub", "True", "--hub_model_id", "user/tiny")


def test_a_finished_run_is_pushed(hub, run, tmp_path):
    status, printed = run(client.tiny_recipe, tmp_path, *PUSH, "--hub_token", "hf_user", "--hub_private_repo", "True")
    assert status == 0
    assert f"Pushed: {hub.url}/user/tiny" in printed
    assert hub.store.find("user/tiny")["private"]
    files = hub.store.files("user/tiny", "main")
    expected = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "results.json", "pictures/loss.png"}
    assert expected < set(files)
    assert not [name for name in files if "checkpoint" in name or name in ("manifest.json", "training_args.bin")]
    for name in files:
        content = hub.store.content("user/tiny", name)
        assert b"hf_user" not in content, name
        assert str(tmp_path).encode() not in content, name
    assert hub.store.content("user/tiny", "model.safetensors") == (tmp_path / "out/model.safetensors").read_bytes()
    assert "hf_user" not in (tmp_path / "out" / "results.json").read_text()


def test_a_failed_push_is_a_warning_and_the_same_command_pushes_later(hub, run, tmp_path):
    hub.fail("lfs_put", 503, times=1000)
    status, printed = run(client.tiny_recipe, tmp_path, *PUSH)
    assert status == 0
    assert "warning:" in printed
    assert f"The result is kept in {tmp_path}/out; later: hf-ftstrategies push {tmp_path}/out" in printed
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["status"] == "finished"
    weights = (tmp_path / "out" / "model.safetensors").read_bytes()
    hub.faults.clear()
    status, printed = run(client.tiny_recipe, tmp_path, *PUSH)
    assert status == 0
    assert "nothing to do" in printed
    assert "Pushed:" in printed
    assert hub.store.content("user/tiny", "model.safetensors") == weights


@pytest.mark.parametrize(
    ("options", "fault", "message"),
    [
        (("--hub_token", "hf_reader"), None, "has the role read"),
        (("--hub_model_id", "other/tiny"), None, "may not write to other"),
        ((), ("commit", 403), "the token may not write there"),
        ((), ("whoami", 503), "out of order"),
        (("--hub_strategy", "checkpoint"), None, "pushes no checkpoints"),
    ],
)
def test_what_is_not_permitted_is_said_before_any_compute(hub, run, tmp_path, options, fault, message):
    if fault:
        hub.fail(*fault, times=1000)
    status, printed = run(client.tiny_recipe, tmp_path, *PUSH, *options)
    assert status == 2
    assert "error:" in printed
    assert message in printed
    assert not list(tmp_path.glob("out/[!m]*"))  # nothing but a manifest
    hub.faults.clear()
    assert run(client.tiny_recipe, tmp_path)[0] == 0


def test_a_repository_with_something_else_is_refused_before_any_compute(hub, run, tmp_path):
    assert run(client.tiny_recipe, tmp_path / "first", *PUSH)[0] == 0
    before = hub.store.resolve("user/tiny", "main")
    status, printed = run(client.tiny_recipe, tmp_path / "second", *PUSH, "--seed", "7")
    assert status == 2
    assert "something else" in printed
    assert "leave out --push_to_hub" in printed
    assert hub.store.resolve("user/tiny", "main") == before


def test_plan_makes_no_repository(hub, run, tmp_path):
    script = tmp_path / "tiny.py"
    script.write_text(
        f"from hf_ftstrategies.pipeline.recipe import Recipe\nRECIPE = Recipe('t', 'T', {recipe(tmp_path).presets!r})\n"
    )
    assert run(client.command, "plan", script, *PUSH)[0] == 0
    assert hub.requests == []


def test_two_processes_push_once(hub, run, tmp_path):
    presets = {**recipe(tmp_path).presets, "max_steps": 4, "evaluations": 1, "unfreezing": "none"}
    script = tmp_path / "tiny.py"
    script.write_text(
        f"from hf_ftstrategies.pipeline.recipe import Recipe, main\nmain(Recipe('tiny', 'Tiny', {presets!r}))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    environment = run(client.environment)
    done = subprocess.run([*command, *PUSH], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("Pushed:") == 1
    assert hub.routes().count("commit") == 2  # the claim and the run
    assert hub.store.content("user/tiny", "model.safetensors") == (tmp_path / "out/model.safetensors").read_bytes()
