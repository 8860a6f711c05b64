"""What a hub keeps, in a folder: `objects/SHA256` holds contents, `repositories.json` commits and their files."""

import hashlib
import json
import threading
import time
from pathlib import Path
from typing import Any

GIT_ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"


class Refused(Exception):
    """An answer that is an error, with the code that the client of the Hub reads."""

    def __init__(self, status: int, message: str, code: str | None = None):
        super().__init__(message)
        self.status, self.code = status, code


class Store:
    """Repositories by their name. A repository is a `dict`: `private`, `branches` and `tags` (name -> commit), and
    `commits` (id -> message, parent, date and files by path). A file is its size, git's hash, SHA-256 and whether it
    went through LFS.

    Args:
        folder (`str` or `Path`): Made if it is not there; what it holds from an earlier time is there again.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        (self.folder / "objects").mkdir(parents=True, exist_ok=True)
        self.lock = threading.RLock()
        saved = self.folder / "repositories.json"
        self.repositories: dict[str, Any] = json.loads(saved.read_text()) if saved.exists() else {}

    def _save(self):
        (self.folder / "repositories.json").write_text(json.dumps(self.repositories, indent=1))

    def clear(self):
        """Forget everything."""
        self.repositories.clear()
        for content in (self.folder / "objects").iterdir():
            content.unlink()

    def find(self, name):
        if name not in self.repositories:
            raise Refused(404, "Repository not found", "RepoNotFound")
        return self.repositories[name]

    def create(self, name, private):
        """A repository with the one file that the Hub puts there."""
        with self.lock:
            self.repositories[name] = {"private": private, "branches": {"main": None}, "tags": {}, "commits": {}}
            self.commit(name, "main", "initial commit", {".gitattributes": self.add(GIT_ATTRIBUTES)})

    def resolve(self, name, revision):
        """The commit of a branch, a tag or an id."""
        repository = self.find(name)
        names = repository["branches"] | repository["tags"]
        commit = names.get(revision, revision)
        if commit not in repository["commits"]:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    def files(self, name, revision):
        """Files of a commit by path."""
        return self.repositories[name]["commits"][self.resolve(name, revision)]["files"]

    def find_file(self, name, revision, path):
        files = self.files(name, revision)
        if path not in files:
            raise Refused(404, "Entry not found", "EntryNotFound")
        return files[path]

    def object(self, sha256):
        """Where a content lies, or would lie."""
        return self.folder / "objects" / sha256

    def content(self, name, path, revision="main"):
        """A file's bytes, for tests."""
        return self.object(self.find_file(name, revision, path)["sha256"]).read_bytes()

    def add(self, content):
        """Keep a content that comes with its commit."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.object(sha256).write_bytes(content)
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return {"size": len(content), "oid": oid, "sha256": sha256, "lfs": False}

    def add_large(self, sha256, size):
        """A file whose content was uploaded before."""
        stored = self.object(sha256)
        if not stored.exists() or stored.stat().st_size != size:
            raise Refused(400, f"LFS pointer pointed to a file that does not exist: {sha256}")
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"
        return {"size": size, "oid": hashlib.sha1(pointer.encode()).hexdigest(), "sha256": sha256, "lfs": True}

    def commit(self, name, branch, message, changes, parent=None):
        """Files by path, None for one that goes; a folder ends with a slash. Returns the commit's id."""
        with self.lock:
            repository = self.find(name)
            if branch not in repository["branches"]:
                raise Refused(404, f"Invalid rev id: {branch}", "RevisionNotFound")
            head = repository["branches"][branch]
            if parent is not None and parent != head:
                raise Refused(412, "A commit has happened since. Please refresh and try again.")
            files = dict(repository["commits"][head]["files"]) if head else {}
            for path, file in changes.items():
                if file is not None:
                    files[path] = file
                    continue
                gone = [known for known in files if known == path or (path.endswith("/") and known.startswith(path))]
                if not gone:
                    raise Refused(404, "A file with this name doesn't exist", "EntryNotFound")
                for known in gone:
                    del files[known]
            made = {"message": message, "parent": head, "date": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())}
            commit = hashlib.sha1(json.dumps([head, message, files, len(repository["commits"])]).encode()).hexdigest()
            repository["commits"][commit] = {**made, "files": files}
            repository["branches"][branch] = commit
            self._save()
            return commit

    def name_commit(self, name, kind, label, revision):
        """Make a branch or a tag."""
        with self.lock:
            self.find(name)[kind][label] = self.resolve(name, revision)
            self._save()
