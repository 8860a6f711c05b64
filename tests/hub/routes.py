"""The routes of the Hub: one connection of `HubServer`, answered from its store."""

import base64
import hashlib
import json
import re
import socket
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from tests.hub.metadata import check_metadata, metadata_of
from tests.hub.store import Refused

REPO, REVISION = r"(?P<repo>(?:datasets/)?[^/]+/[^/]+)", r"(?P<revision>[^/]+)"
ROUTES = [
    (name, method, re.compile(path))
    for name, method, path in [
        ("whoami", "GET", r"/api/whoami-v2"),
        ("create", "POST", r"/api/repos/create"),
        ("validate_yaml", "POST", r"/api/validate-yaml"),
        ("auth_check", "GET", rf"/api/models/{REPO}/auth-check(?P<write>/write)?"),
        ("info", "GET", rf"/api/models/{REPO}(/revision/{REVISION})?"),
        ("tree", "GET", rf"/api/models/{REPO}/tree/{REVISION}(/(?P<path>.+))?"),
        ("paths_info", "POST", rf"/api/models/{REPO}/paths-info/{REVISION}"),
        ("refs", "GET", rf"/api/models/{REPO}/refs"),
        ("name_commit", "POST", rf"/api/models/{REPO}/(?P<kind>tag|branch)/{REVISION}"),
        ("preupload", "POST", rf"/api/models/{REPO}/preupload/{REVISION}"),
        ("commit", "POST", rf"/api/models/{REPO}/commit/{REVISION}"),
        ("lfs_batch", "POST", rf"/{REPO}\.git/info/lfs/objects/batch"),
        ("lfs_verify", "POST", rf"/{REPO}\.git/info/lfs/verify"),
        ("lfs_put", "PUT", r"/lfs/(?P<sha256>[0-9a-f]{64})"),
        ("download", "GET", rf"/{REPO}/resolve/{REVISION}/(?P<path>.+)"),
        ("metadata", "HEAD", rf"/{REPO}/resolve/{REVISION}/(?P<path>.+)"),
    ]
]
LARGE = (".safetensors", ".bin", ".pt", ".pth")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer in one piece: the second would wait for the first to be acknowledged

    def do_GET(self):
        url = urlsplit(self.path.replace("/api/datasets/", "/api/models/datasets/", 1))
        self.query = parse_qs(url.query)
        self.fault = None
        try:
            for name, method, pattern in ROUTES:
                match = pattern.fullmatch(url.path)
                if match and self.command == method:
                    groups = {key: unquote(value) for key, value in match.groupdict().items() if value is not None}
                    return self._serve(name, groups)
            self._drain()
            raise Refused(404, f"No route {url.path}", "EntryNotFound")
        except Refused as error:
            self._reply_error(error.status, str(error), error.code)
        except (ConnectionError, TimeoutError):  # a client that has gone
            self.close_connection = True

    do_POST = do_PUT = do_HEAD = do_GET

    def _serve(self, name, groups):
        self.server.requests.append((self.command, name, self.path))
        self.fault = self.server.take_fault(name)
        kind = self.fault.kind if self.fault else None
        if kind == "slow":
            threading.Event().wait(self.fault.seconds)
        if kind == "drop" and name != "download":
            return self._hang_up_in_the_middle()
        if isinstance(kind, int):
            self._drain()
            return self._reply_error(kind, "injected", "RepoNotFound" if kind == 404 else None, self.fault.headers)
        self.account = self._authenticate()
        if "repo" in groups:
            self._authorize(groups["repo"], name)
        return getattr(self, f"_{name}")(**groups)

    # ---- who asks

    def _authenticate(self):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.server.accounts:
            self._drain()
            raise Refused(401, "Invalid credentials in Authorization header")
        return self.server.accounts.get(token)

    def _authorize(self, repo, name):
        repository = self.server.store.repositories.get(repo)
        writes = name in ("preupload", "commit", "lfs_batch", "lfs_verify", "name_commit")
        writable = self.account is not None and self.account.may_write(repo)
        if repository is None or (repository["private"] and not writable):
            self._drain()
            raise Refused(404 if self.account else 401, "Repository not found", "RepoNotFound")
        if writes and not writable:
            self._drain()
            raise Refused(403, "You don't have the rights to write to this repository")

    # ---- bodies

    def _chunks(self) -> Iterator[bytes]:
        """The body of the request, whether its length was told or not."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            chunk = self.rfile.read(min(left, 1 << 20))
            if not chunk:
                raise ConnectionError("the client hung up")
            left -= len(chunk)
            yield chunk

    def _drain(self):
        for _ in self._chunks():
            pass

    def _json(self):
        return json.loads(b"".join(self._chunks()) or b"{}")

    def _hang_up_in_the_middle(self):
        """Read a part of what comes, and be gone."""
        self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 1 << 16) // 2)
        self._hang_up()

    def _hang_up(self):
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _reply(self, content: bytes = b"", status=200, headers=None):
        kind = self.fault.kind if self.fault else None
        if kind != "lost":
            self.send_response(status)
            for key, value in {"Content-Length": len(content), **(headers or {})}.items():
                self.send_header(key, str(value))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if kind == "drop" else content)
        if kind in ("drop", "lost"):
            self._hang_up()

    def _reply_json(self, content, status=200, headers=None):
        self._reply(json.dumps(content).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _reply_error(self, status, message, code=None, headers=None):
        headers = {**({"X-Error-Code": code, "X-Error-Message": message} if code else {}), **(headers or {})}
        if status >= 500:  # as gateways do
            self._reply(b"<html><h1>Out of order</h1></html>", status, {"Content-Type": "text/html", **headers})
        else:
            self._reply_json({"error": message}, status, headers)

    # ---- routes

    def _whoami(self):
        if self.account is None:
            raise Refused(401, "Invalid username or password.")
        self._reply_json(self.account.whoami())

    def _create(self):
        asked = self._json()
        if self.account is None:
            raise Refused(401, "Invalid username or password.")
        repo = f"{asked.get('organization') or self.account.name}/{asked['name']}"
        if not self.account.may_write(repo):
            raise Refused(403, f"You don't have the rights to create a model under the namespace {repo.split('/')[0]}")
        url = {"url": f"{self.server.url}/{repo}"}
        if repo in self.server.store.repositories:
            self._reply_json({"error": "You already created this model repo", **url}, 409)
        else:
            self.server.store.create(repo, asked.get("visibility") == "private" or asked.get("private") is True)
            self._reply_json(url)

    def _validate_yaml(self):
        wrong, warnings = check_metadata(self._json()["content"])
        self._reply_json({"errors": wrong, "warnings": warnings}, 400 if wrong else 200)

    def _auth_check(self, repo, write=None):
        if write and not (self.account and self.account.may_write(repo)):
            raise Refused(403, "You don't have the rights to write to this repository")
        self._reply_json({})

    def _info(self, repo, revision="main"):
        store = self.server.store
        sha = store.resolve(repo, revision)
        files = [describe(path, file) | {"rfilename": path} for path, file in store.files(repo, revision).items()]
        siblings = files if "blobs" in self.query else [{"rfilename": file["rfilename"]} for file in files]
        content = {"_id": sha[:24], "id": repo.removeprefix("datasets/"), "sha": sha, "siblings": siblings}
        if not repo.startswith("datasets/"):
            content["modelId"] = repo
        content |= {"private": store.repositories[repo]["private"], "tags": [], "gated": False, "disabled": False}
        content |= {"createdAt": "2026-01-01T00:00:00.000Z", "downloads": 0, "likes": 0}
        if "README.md" in store.files(repo, revision):
            content["cardData"] = metadata_of(store.content(repo, "README.md", revision).decode())
        self._reply_json(content)

    def _tree(self, repo, revision, path=""):
        files = self.server.store.files(repo, revision)
        inside = {p: file for p, file in files.items() if not path or p.startswith(path + "/")}
        if path and not inside:
            raise Refused(404, "Entry not found", "EntryNotFound")
        deep = self.query.get("recursive", ["false"])[0].lower() == "true"
        depth = path.count("/") + 1 if path else 0
        found = [describe(p, file) for p, file in inside.items() if deep or p.count("/") == depth]
        above = {tuple(p.split("/")[:n]) for p in inside for n in range(depth + 1, p.count("/") + 1)}
        folders = ["/".join(parts) for parts in sorted(above) if deep or len(parts) == depth + 1]
        self._reply_json([{"type": "directory", "path": p, "oid": "0" * 40, "size": 0} for p in folders] + found)

    def _paths_info(self, repo, revision):
        body = b"".join(self._chunks()).decode()
        asked = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body)["paths"]
        files = self.server.store.files(repo, revision)
        self._reply_json([describe(path, files[path]) for path in asked if path in files])

    def _refs(self, repo):
        found = {"converts": [], "pullRequests": []}
        for kind, ref in (("branches", "heads"), ("tags", "tags")):
            names = self.server.store.find(repo)[kind].items()
            found[kind] = [{"name": n, "ref": f"refs/{ref}/{n}", "targetCommit": commit} for n, commit in names]
        self._reply_json(found)

    def _name_commit(self, repo, kind, revision):
        asked = self._json()
        if kind == "tag":
            self.server.store.name_commit(repo, "tags", asked["tag"], revision)
        else:
            self.server.store.name_commit(repo, "branches", revision, asked.get("startingPoint", "main"))
        self._reply_json({})

    def _preupload(self, repo, revision):
        files = self.server.store.files(repo, revision)
        answer = []
        for asked in self._json()["files"]:
            path, known = asked["path"], files.get(asked["path"])
            large = path.endswith(LARGE) or asked["size"] > 10_000_000
            oid = known and known["sha256" if known["lfs"] else "oid"]
            answer.append(
                {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False, "oid": oid}
            )
        self._reply_json({"files": answer})

    def _lfs_batch(self, repo):
        answer = []
        for asked in self._json()["objects"]:
            oid, actions = asked["oid"], {}
            if not self.server.store.object(oid).exists():
                verify = {"href": f"{self.server.url}/{repo}.git/info/lfs/verify"}
                actions = {"actions": {"upload": {"href": f"{self.server.url}/lfs/{oid}"}, "verify": verify}}
            answer.append({"oid": oid, "size": asked["size"], **actions})
        self._reply_json({"transfer": "basic", "objects": answer})

    def _lfs_put(self, sha256):
        found = hashlib.sha256()
        with tempfile.NamedTemporaryFile(dir=self.server.store.folder, delete=False) as part:
            for chunk in self._chunks():
                if self.fault and self.fault.kind == "corrupt":
                    chunk, self.fault = bytes([chunk[0] ^ 1]) + chunk[1:], None
                found.update(chunk)
                part.write(chunk)
        if found.hexdigest() != sha256:
            Path(part.name).unlink()
            raise Refused(400, f"The content has the SHA-256 {found.hexdigest()}, announced was {sha256}")
        Path(part.name).replace(self.server.store.object(sha256))
        self._reply(headers={"ETag": f'"{sha256}"'})

    def _lfs_verify(self, repo):
        asked = self._json()
        self.server.store.add_large(asked["oid"], asked["size"])
        self._reply_json({})

    def _commit(self, repo, revision):
        store, header, changes = self.server.store, {}, {}
        for line in b"".join(self._chunks()).splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                header = value
            elif item["key"] == "file":
                changes[value["path"]] = store.add(base64.b64decode(value["content"]))
            elif item["key"] == "lfsFile":
                changes[value["path"]] = store.add_large(value["oid"], value["size"])
            else:
                changes[value["path"] + "/" * (item["key"] == "deletedFolder")] = None
        commit = store.commit(repo, revision, header["summary"], changes, header.get("parentCommit"))
        url = f"{self.server.url}/{repo}/commit/{commit}"
        self._reply_json({"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})

    def _describe_download(self, repo, revision, path):
        file = self.server.store.find_file(repo, revision, path)
        commit = self.server.store.resolve(repo, revision)
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes", "ETag": f'"{file["oid"]}"'}
        if file["lfs"]:
            etag = f'"{file["sha256"]}"'
            headers |= {"ETag": etag, "X-Linked-ETag": etag, "X-Linked-Size": file["size"]}
        return file, headers

    def _metadata(self, repo, revision, path):
        file, headers = self._describe_download(repo, revision, path)
        self._reply(headers={**headers, "Content-Length": file["size"]})

    def _download(self, repo, revision, path):
        file, headers = self._describe_download(repo, revision, path)
        content, status = self.server.store.object(file["sha256"]).read_bytes(), 200
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            begin, end = int(wanted[1]), min(int(wanted[2] or file["size"]), file["size"] - 1)
            if begin > end:
                raise Refused(416, f"There is nothing from {begin} on")
            headers["Content-Range"] = f"bytes {begin}-{end}/{file['size']}"
            content, status = content[begin : end + 1], 206
        self._reply(content, status, headers)

    def log_message(self, format, *args):
        """Silent: a browser of the requests reads `HubServer.requests`."""


def describe(path, file):
    """A file as the tree of a repository shows it."""
    shown = {"type": "file", "path": path, "size": file["size"], "oid": file["oid"], "blobId": file["oid"]}
    if file["lfs"]:
        pointer = {"size": file["size"], "oid": file["sha256"], "sha256": file["sha256"], "pointerSize": 134}
        shown["lfs"] = pointer
    return shown
