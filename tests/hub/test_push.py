"""Pushing finished runs over HTTP with the real client."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save_file

from hf_ftstrategies.hub.push import check_permission, claim_repository, push_folder
from tests.hub import client
from tests.hub.finished_run import PUBLISHED, WEIGHTS, finished_run

REPO = "user/bbc"


@pytest.fixture
def folder(tmp_path):
    return finished_run(tmp_path / "out")


def content_of(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_what_is_published(hub, run, folder):
    before = content_of(folder)
    pushed = run(push_folder, folder, REPO)
    files = hub.store.files(REPO, "main")
    assert set(files) == PUBLISHED
    assert content_of(folder) == before
    assert pushed.repo_url == f"{hub.url}/{REPO}"
    assert pushed.oid == hub.store.resolve(REPO, "main")
    assert pushed.commit_message == "BBC News: topics of articles: test accuracy 0.960"
    for name in files:
        assert str(folder).encode() not in hub.store.content(REPO, name), name
    assert json.loads(hub.store.content(REPO, "results.json"))["command"] == "python run.py --output_dir out"
    assert b"--output_dir out" in hub.store.content(REPO, "report.html")
    card = run(client.call, "model_info", REPO).card_data
    assert (card.base_model, card.license) == ("sentence-transformers/all-MiniLM-L6-v2", "apache-2.0")


def test_a_second_push_uploads_nothing(hub, run, folder):
    first = run(push_folder, folder, REPO)
    hub.routes()
    assert run(push_folder, folder, REPO).oid == first.oid
    assert not {"lfs_put", "commit"} & set(hub.routes())
    (folder / "README.md").write_text("---\nlicense: mit\n---\nBetter")
    assert run(push_folder, folder, REPO).oid != first.oid
    assert "lfs_put" not in hub.routes()


def test_a_large_file_survives_the_round_trip(hub, run, folder):
    weights = {"w": np.random.default_rng(0).standard_normal((2560, 2560), dtype=np.float32)}  # 26 MB
    save_file(weights, folder / "model.safetensors")
    run(push_folder, folder, REPO)
    assert hub.store.files(REPO, "main")["model.safetensors"]["lfs"]
    hub.fail("download", "drop")
    np.testing.assert_array_equal(load(run(client.download, REPO, "model.safetensors"))["w"], weights["w"])


def test_something_else_is_not_overwritten(hub, run, folder, tmp_path):
    run(client.call, "create_repo", REPO)
    old = run(client.call, "upload_file", path_or_fileobj=b"{}", path_in_repo="adapter_config.json", repo_id=REPO)
    with pytest.raises(ValueError, match=r"something else \(adapter_config\.json\).*--force.*kept in .*push .*out"):
        run(push_folder, folder, REPO)
    run(push_folder, folder, REPO, force=True)
    assert set(hub.store.files(REPO, "main")) == PUBLISHED
    assert set(hub.store.files(REPO, old.oid)) == {".gitattributes", "adapter_config.json"}
    other = finished_run(tmp_path / "other", seed=2)
    with pytest.raises(ValueError, match="something else"):
        run(push_folder, other, REPO)
    run(client.call, "upload_file", path_or_fileobj=b"Apache", path_in_repo="LICENSE", repo_id=REPO)
    run(push_folder, folder, REPO)  # a file that somebody added to ours
    assert set(hub.store.files(REPO, "main")) == PUBLISHED | {"LICENSE"}


def test_private(hub, run, folder):
    run(push_folder, folder, REPO, private=True)
    assert hub.store.find(REPO)["private"]
    run(push_folder, folder, REPO)
    assert hub.store.find(REPO)["private"]
    run(client.call, "create_repo", "user/open")
    with pytest.raises(ValueError, match=r"it is public.*user/open/settings"):
        run(push_folder, folder, "user/open", private=True)
    assert set(hub.store.files("user/open", "main")) == {".gitattributes"}


def test_a_claim_proves_the_permission_and_is_not_in_the_way(hub, run, folder):
    settings = json.loads((folder / "manifest.json").read_text())["settings"]
    assert run(claim_repository, "bbc", {**settings, "seed": 2}) == REPO
    assert run(claim_repository, REPO, settings) == REPO
    assert set(hub.store.files(REPO, "main")) == {".gitattributes", "hf_ftstrategies.json"}
    run(push_folder, folder, REPO)
    assert run(claim_repository, REPO, settings) == REPO
    with pytest.raises(ValueError, match="something else"):
        run(claim_repository, REPO, {**settings, "seed": 2})
    hub.fail("commit", 403)
    with pytest.raises(ValueError, match=r"Cannot push to 'user/new': the token may not write there.*role write"):
        run(claim_repository, "user/new", settings)


@pytest.mark.parametrize(("repo", "full"), [("user/x", "user/x"), ("x", "user/x"), ("team/x", "team/x")])
def test_permission(run, repo, full):
    assert run(check_permission, repo) == full


@pytest.mark.parametrize(
    ("repo", "token", "message"),
    [
        ("user/x", "hf_nobody", "does not know the token"),
        ("user/x", "hf_reader", "has the role read"),
        ("user/x", "hf_other", "is of other, who may not write to user, but to other"),
        ("readers/x", "hf_user", "may not write to readers, but to user, team"),
        ("nobody/x", "hf_user", "may not write to nobody"),
    ],
)
def test_no_permission(run, folder, repo, token, message):
    with pytest.raises(ValueError, match=message):
        run(check_permission, repo, token)
    with pytest.raises(ValueError, match=message):
        run(push_folder, folder, repo, token=token)


def test_what_a_fine_grained_token_may_do_shows_when_it_is_used(hub, run, folder):
    assert run(check_permission, "readers/x", "hf_fine") == "readers/x"
    assert run(push_folder, folder, "team/x", token="hf_fine").repo_url == f"{hub.url}/team/x"
    with pytest.raises(ValueError, match="the token may not write there"):
        run(push_folder, folder, "readers/x", token="hf_fine")


# Route and fault; how often; the waits of this package and of the client.
PASSING = [
    ("whoami", 429, 1, [1]),
    ("create", 500, 2, [1, 2]),
    ("create", 504, 1, [1]),
    ("info", 502, 1, [1]),
    ("info", 503, 1, [1]),
    ("preupload", 408, 1, [1]),
    ("validate_yaml", 503, 1, [1]),
    ("preupload", 429, 1, [1]),
    ("lfs_batch", 503, 2, [1, 2]),
    ("lfs_put", 500, 1, [1]),
    ("lfs_put", "drop", 1, [1]),
    ("lfs_verify", 503, 1, [1]),
    ("commit", 409, 1, [1]),
    ("commit", 412, 1, [1]),
    ("commit", 503, 4, [1, 2, 4, 8]),
    ("commit", "drop", 1, [1]),
    ("commit", "lost", 1, [1]),
    ("whoami", "slow", 1, [1]),
]


@pytest.mark.parametrize(("route", "kind", "times", "waits"), PASSING)
def test_faults_that_pass(hub, run, folder, route, kind, times, waits):
    run(client.waits)
    hub.fail(route, kind, times, seconds=1)
    run(client.push_impatiently if kind == "slow" else push_folder, folder, REPO)
    assert set(hub.store.files(REPO, "main")) == PUBLISHED
    assert len(hub.store.find(REPO)["commits"]) == 2
    assert run(client.waits) == waits


def test_the_hub_says_how_long_to_wait(hub, run, folder):
    run(client.waits)
    hub.fail("commit", 429, headers={"Retry-After": "7"})
    hub.fail("commit", 429, headers={"Retry-After": "3600"})
    run(push_folder, folder, REPO)
    assert run(client.waits) == [7, 60]


STAYING = [
    ("whoami", 401, "does not know the token"),
    ("whoami", 503, r"out of order \(status 503\)"),
    ("whoami", "drop", r"no answer from http://127\.0\.0\.1"),
    ("create", 403, "may not write there"),
    ("info", 404, "no such repository"),
    ("preupload", 403, "may not write there"),
    ("lfs_batch", 401, "does not know the token"),
    ("lfs_put", 500, "out of order"),
    ("lfs_put", "drop", "no answer from"),
    ("lfs_put", "corrupt", "refused it .400: The content has the SHA-256"),
    ("lfs_verify", 404, "no such repository"),
    ("validate_yaml", 503, "no answer from .*JSON"),
    ("commit", 403, "may not write there"),
    ("commit", 404, "no such repository"),
    ("commit", 409, "somebody else"),
    ("commit", 429, "fewer requests"),
    ("commit", 500, "out of order"),
    ("commit", "drop", "no answer from"),
]


@pytest.mark.parametrize(("route", "kind", "message"), STAYING)
def test_faults_that_stay_leave_the_result_and_a_later_push_succeeds(hub, run, folder, route, kind, message):
    before = content_of(folder)
    hub.fail(route, kind, times=1000)
    again = re.escape(f"The result is kept in {folder}; later: hf-ftstrategies push {folder} --repo {REPO}")
    with pytest.raises(ValueError, match=f"was not pushed to '{REPO}': .*{message}.* {again}$"):
        run(push_folder, folder, REPO)
    assert content_of(folder) == before
    hub.faults.clear()
    hub.routes()
    run(push_folder, folder, REPO)
    assert set(hub.store.files(REPO, "main")) == PUBLISHED
    assert hub.store.content(REPO, "model.safetensors") == WEIGHTS
    assert ("lfs_put" in hub.routes()) == (route != "commit" and route != "lfs_verify")  # it goes on where it was


@pytest.mark.parametrize("route", ["metadata", "download"])
def test_faults_while_looking_whose_the_repository_is(hub, run, folder, route):
    first = run(push_folder, folder, REPO)
    (folder / "config.json").write_text("{}")
    hub.fail(route, 503, times=1000)
    with pytest.raises(ValueError, match=r"was not pushed .*out of order"):
        run(push_folder, folder, REPO)
    hub.faults.clear()
    hub.fail(route, "drop")
    assert run(push_folder, folder, REPO).oid != first.oid


def test_offline(run, folder):
    with pytest.raises(ValueError, match="offline mode is enabled"):
        run(client.push_offline, folder, REPO)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("README.md", "hf_" + "aB3" * 12, r"README\.md holds a token"),
        ("classifier.py", f"token = '{'hf_' + 'x' * 34}'", r"classifier\.py holds a token"),
        ("config.json", json.dumps({"name": os.getcwd()}), r"config\.json names /.*, a place on this machine"),
        ("manifest.json", "{}", "no run of ours"),
        ("manifest.json", '{"status": "running", "settings": {}}', "has not finished"),
    ],
)
def test_refused_before_the_hub_is_asked(hub, run, folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        run(push_folder, folder, REPO)
    assert hub.requests == []


@pytest.mark.parametrize("name", ["model.safetensors", "results.json", "manifest.json"])
def test_refuses_a_folder_that_lacks_a_file(run, folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match="no run of ours" if name == "manifest.json" else rf"no .*{name[-5:]}: give"):
        run(push_folder, folder, REPO)


def test_command_line(hub, run, folder):
    status, printed = run(client.command, "push", folder, "--repo", REPO, "--private")
    assert (status, printed) == (
        0,
        f"{hub.url}/{REPO} holds {folder}, revision {hub.store.resolve(REPO, 'main')}",
    )
    assert hub.store.find(REPO)["private"]
    status, printed = run(client.command, "push", folder / "none", "--repo", REPO)
    assert status == 2
    assert "no run of ours" in printed
    run(client.call, "upload_file", path_or_fileobj=b"{", path_in_repo="hf_ftstrategies.json", repo_id=REPO)
    status, printed = run(client.command, "push", folder, "--repo", REPO)
    assert (status, "--force" in printed) == (2, True)
    assert run(client.command, "push", folder, "--repo", REPO, "--force")[0] == 0
