"""The small hub, asked by the real client."""

import hashlib
import random

import pytest
from huggingface_hub.errors import (
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tests.hub import client
from tests.hub.metadata import check_metadata
from tests.hub.store import Store

LARGE = random.Random(0).randbytes(300_000)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"picture")
    (tmp_path / "model.safetensors").write_bytes(LARGE)
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\nText")
    return tmp_path


def upload(run, name, folder, **options):
    run(client.call, "create_repo", name, exist_ok=True)
    return run(client.call, "upload_folder", repo_id=name, folder_path=folder, **options)


def test_what_goes_up_comes_down(hub, run, folder):
    commit = upload(run, "user/round", folder)
    assert hub.store.resolve("user/round", "main") == commit.oid
    assert hub.store.files("user/round", "main")["model.safetensors"]["sha256"] == hashlib.sha256(LARGE).hexdigest()
    assert run(client.download, "user/round", "model.safetensors") == LARGE
    assert run(client.download, "user/round", "pictures/a.png") == b"picture"
    names = {"README.md", "model.safetensors", "pictures/a.png", ".gitattributes"}
    assert set(run(client.call, "list_repo_files", "user/round")) == names
    info = run(client.call, "model_info", "user/round", files_metadata=True)
    assert info.card_data.license == "mit"
    assert {file.rfilename: file.size for file in info.siblings}["model.safetensors"] == len(LARGE)


def test_an_equal_folder_makes_no_commit_and_uploads_nothing(hub, run, folder):
    first = upload(run, "user/twice", folder)
    hub.requests.clear()
    assert upload(run, "user/twice", folder).oid == first.oid
    assert not {"lfs_put", "commit"} & set(hub.routes())


def test_revisions_tags_branches_and_deletions(hub, run, folder):
    first = upload(run, "user/old", folder)
    run(client.call, "create_tag", "user/old", tag="v1")
    run(client.call, "create_branch", "user/old", branch="next")
    run(client.call, "delete_folder", "pictures", "user/old")
    (folder / "model.safetensors").write_bytes(b"other")
    second = upload(run, "user/old", folder, ignore_patterns="pictures/*")
    assert run(client.download, "user/old", "model.safetensors") == b"other"
    for revision in ("v1", "next", first.oid):
        assert run(client.download, "user/old", "model.safetensors", revision=revision) == LARGE
    with pytest.raises(RemoteEntryNotFoundError):
        run(client.download, "user/old", "pictures/a.png")
    with pytest.raises(RevisionNotFoundError):
        run(client.download, "user/old", "README.md", revision="v2")
    (folder / "README.md").write_text("")
    with pytest.raises(HfHubHTTPError, match="A commit has happened since"):
        upload(run, "user/old", folder, parent_commit=first.oid)
    assert hub.store.resolve("user/old", "main") == second.oid


def test_who_may_do_what(run):
    run(client.call, "create_repo", "user/secret", private=True)
    assert run(client.call, "whoami")["name"] == "user"
    assert run(client.call, "model_info", "user/secret").private
    with pytest.raises(RepositoryNotFoundError):
        run(client.call, "model_info", "user/secret", token="hf_other")
    for token, status in (("hf_reader", 403), ("hf_other", 403), ("hf_nobody", 401)):
        with pytest.raises(HfHubHTTPError) as refused:
            run(client.call, "create_repo", "user/new", token=token)
        assert refused.value.response.status_code == status


@pytest.mark.parametrize(("kind", "waits"), [(429, [1.0]), (500, [1.0]), (503, [1.0]), ("drop", [1])])
def test_faults_of_uploads_are_repeated_by_the_client(hub, run, folder, kind, waits):
    run(client.waits)
    hub.fail("lfs_put", kind, headers={"Retry-After": "0"} if kind != "drop" else {})
    upload(run, f"user/fault-{kind}", folder)
    assert hub.store.content(f"user/fault-{kind}", "model.safetensors") == LARGE
    assert run(client.waits) == waits


def test_a_download_that_breaks_off_is_resumed(hub, run, folder):
    upload(run, "user/broken", folder)
    hub.fail("download", "drop", times=2)
    hub.requests.clear()
    assert run(client.download, "user/broken", "model.safetensors") == LARGE
    assert hub.routes().count("download") == 3


def test_a_corrupt_upload_is_refused(hub, run, folder):
    hub.fail("lfs_put", "corrupt")
    with pytest.raises(RuntimeError, match=r"model\.safetensors"):
        upload(run, "user/corrupt", folder)
    assert list(hub.store.files("user/corrupt", "main")) == [".gitattributes"]


def test_what_was_pushed_is_there_after_a_restart(hub, run, folder):
    upload(run, "user/kept", folder)
    assert Store(hub.store.folder).content("user/kept", "model.safetensors") == LARGE


@pytest.mark.parametrize(
    ("card", "wrong"),
    [
        ("---\nbase_model: /home/x/y\n---\n", '"base_model" must be an id of the Hub'),
        ("---\ntags: one\n---\n", '"tags" must be a list'),
        ("---\na: [\n---\n", "while parsing"),
    ],
)
def test_metadata_the_hub_refuses(card, wrong):
    errors, _ = check_metadata(card)
    assert wrong in errors[0]["message"]
