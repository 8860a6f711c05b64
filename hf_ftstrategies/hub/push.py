"""Push a finished run to the Hugging Face Hub, again and again if need be, and never over something else.

A repository belongs to one run, by a small file with a digest of the run's settings. A push is one commit on what
was seen of the repository before; so it can be repeated at any time, and uploads only what is not there yet.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, ModelInfo

from hf_ftstrategies.evaluation.plots import metric_label
from hf_ftstrategies.evaluation.report import headline
from hf_ftstrategies.hub.attempts import TIMEOUT, TOKENS_PAGE, attempt
from hf_ftstrategies.hub.public_files import public_files, read_settings

MARKER = "hf_ftstrategies.json"


def check_permission(repo_id: str, token: str | None = None) -> str:
    """Ask the Hub whether a token may write to a namespace.

    Args:
        repo_id (`str`): `"user/name"`, or `"name"` in the namespace of the token's owner.
        token (`str`, *optional*): The one of the environment or of `hf auth login` if None.

    Returns:
        `str`: `"user/name"`.

    Raises:
        ValueError: no token, one the Hub does not know or that may only read, somebody else's namespace, or a Hub
            that does not answer. What a fine-grained token may do shows only when it is used.
    """
    return attempt(lambda: _full_name(HfApi(token=token), repo_id), f"Cannot push to {repo_id!r}")


def claim_repository(repo_id: str, settings: dict[str, Any], private: bool = False, token: str | None = None) -> str:
    """Make sure that a run can be pushed when it is finished, by writing into the repository whose it is.

    Nothing else proves it: what a token may do is known for certain only where it is used.

    Args:
        repo_id (`str`), token (`str`, *optional*): As of [`check_permission`].
        settings (`dict`): Of the run, as its manifest has them.
        private (`bool`, *optional*, defaults to `False`): Make the repository a private one.

    Returns:
        `str`: `"user/name"`.

    Raises:
        ValueError: As [`check_permission`]; the repository holds something else, or is public where it should be
            private.
    """
    marker = _marker(settings)

    def claim() -> str:
        api = HfApi(token=token)
        info, _ = _open(api, _full_name(api, repo_id), marker, private, force=False)
        _commit(api, info, [_as_addition(marker)], f"Reserved for the recipe {settings['recipe']}")
        return info.id

    return attempt(claim, f"Cannot push to {repo_id!r}")


def push_folder(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool = False,
    force: bool = False,
    token: str | None = None,
) -> CommitInfo:
    """Push the folder of a finished run: model, tokenizer, code, model card, results, plan, report and pictures.

    `results.json`, `plan.json` and `report.html` go up without paths of this machine. A second push of the same
    folder changes and uploads nothing; a push that broke off goes on with what is not there yet.

    Args:
        folder (`str` or `PathLike`): Output folder of a recipe; only read.
        repo_id (`str`): `"user/name"`, or `"name"` in the namespace of the token's owner. Made if it is not there.
        private (`bool`, *optional*, defaults to `False`): Make the repository a private one.
        force (`bool`, *optional*, defaults to `False`): Replace all files of a repository that holds something
            else; its earlier commits stay.
        token (`str`, *optional*): The one of the environment or of `hf auth login` if None.

    Returns:
        `CommitInfo`: with `repo_url`, `commit_url`, and `oid`, the `revision` for `from_pretrained`.

    Raises:
        ValueError: no finished run; a token or a path of this machine in a file; as [`claim_repository`]; or the
            Hub did not take it, in several attempts where that may help.
    """
    folder = Path(folder)
    marker = _marker(read_settings(folder))
    with TemporaryDirectory() as cleaned:
        files, results = public_files(folder, Path(cleaned))
        best = headline(results)
        message = f"{results['title']}: {best['split']} {metric_label(best['metric'])} {best['value']:.3f}"

        def push() -> CommitInfo:
            api = HfApi(token=token)
            info, foreign = _open(api, _full_name(api, repo_id), marker, private, force)
            changes = [CommitOperationAdd(name, str(path)) for name, path in files.items()]
            changes += [CommitOperationDelete(name) for name in sorted(foreign - files.keys())]
            return _commit(api, info, [_as_addition(marker), *changes], message)

        again = f"hf-ftstrategies push {folder} --repo {repo_id}{' --private' * private}"
        kept = f"The result is kept in {folder}; later: {again}"
        return attempt(push, f"{folder} was not pushed to {repo_id!r}", kept)


def _marker(settings: dict[str, Any]) -> dict[str, str]:
    """Whose a repository is. Settings may hold paths: only their digest is published."""
    text = json.dumps(settings, sort_keys=True)
    return {"recipe": settings["recipe"], "settings": hashlib.sha256(text.encode()).hexdigest()}


def _as_addition(marker: dict[str, str]) -> CommitOperationAdd:
    return CommitOperationAdd(MARKER, (json.dumps(marker, indent=2) + "\n").encode())


def _full_name(api: HfApi, repo_id: str) -> str:
    owner = api.whoami()
    role = owner.get("auth", {}).get("accessToken", {}).get("role")
    if role == "read":
        raise ValueError(f"the token has the role read. Make one with the role write at {TOKENS_PAGE}.")
    namespace, _, name = repo_id.rpartition("/")
    namespace = namespace or owner["name"]
    roles = {owner["name"]: "admin"} | {org["name"]: org.get("roleInOrg") for org in owner.get("orgs", [])}
    # a fine-grained token need not see the organisations that it may write to
    if roles.get(namespace, "read") == "read" and role != "fineGrained":
        writable = ", ".join(known for known, role in roles.items() if role != "read")
        raise ValueError(f"the token is of {owner['name']}, who may not write to {namespace}, but to {writable}.")
    return f"{namespace}/{name}"


def _open(api: HfApi, repo_id: str, marker: dict[str, str], private: bool, force: bool) -> tuple[ModelInfo, set[str]]:
    """Make the repository if it is not there. Returns what it is, and its files that are not of this run."""
    api.create_repo(repo_id, private=private or None, exist_ok=True)
    info = api.model_info(repo_id, timeout=TIMEOUT)
    if private and not info.private:
        raise ValueError(f"it is public. Make it private at {api.endpoint}/{repo_id}/settings, or choose another one.")
    names = {file.rfilename for file in info.siblings} - {".gitattributes", MARKER}
    if not names or _read_marker(api, info) == marker:
        return info, set()
    if not force:
        content = ", ".join(sorted(names)[:3]) + ", ..." * (len(names) > 3)
        raise ValueError(f"it holds something else ({content}). Choose another one, or replace that with --force.")
    return info, names


def _read_marker(api: HfApi, info: ModelInfo) -> Any:
    if MARKER not in [file.rfilename for file in info.siblings]:
        return None
    text = Path(api.hf_hub_download(info.id, MARKER, revision=info.sha)).read_text(encoding="utf-8")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _commit(api: HfApi, info: ModelInfo, changes: list, message: str) -> CommitInfo:
    """Commit on what was seen: if somebody else was faster, the Hub refuses, and the next attempt looks again."""
    return api.create_commit(info.id, changes, commit_message=message, parent_commit=info.sha)
