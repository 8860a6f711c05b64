"""A small hub that speaks the protocol of huggingface.co: `python -m tests.hub.server FOLDER --port 8765`.

What is pushed stays in the folder. Tests start it with `hub = HubServer(folder).start()`, look at `hub.requests` and
`hub.store`, and make it misbehave with `hub.fail(route, kind, times)`. The client must get its environment
(`environment`) before it imports `huggingface_hub`.
"""

import argparse
import threading
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path

from tests.hub.routes import Handler
from tests.hub.store import Store


@dataclass
class Account:
    """Whom a token belongs to. `role` is that of the token, `orgs` has the person's own in organisations."""

    name: str = "user"
    role: str = "write"
    orgs: dict[str, str] = field(default_factory=dict)

    def whoami(self):
        seen = {} if self.role == "fineGrained" else self.orgs
        orgs = [{"name": name, "type": "org", "roleInOrg": role} for name, role in seen.items()]
        auth = {"type": "access_token", "accessToken": {"displayName": "token", "role": self.role}}
        return {"type": "user", "name": self.name, "orgs": orgs, "auth": auth}

    def may_write(self, repo):
        namespace = repo.removeprefix("datasets/").split("/")[0]
        member = namespace == self.name or self.orgs.get(namespace, "read") != "read"
        return self.role != "read" and member


ACCOUNTS = {
    "hf_user": Account(orgs={"team": "write", "readers": "read"}),
    "hf_reader": Account(role="read"),
    "hf_fine": Account(role="fineGrained", orgs={"team": "write"}),
    "hf_other": Account("other"),
}


@dataclass
class Fault:
    """What goes wrong on a route: a status, or `drop` (the connection, in the middle of the body), `lost` (done, but
    nobody hears of it), `slow`, or `corrupt` (an upload that arrives with another byte)."""

    route: str
    kind: int | str
    times: int
    headers: dict[str, str]
    seconds: float


class HubServer(ThreadingHTTPServer):
    """The server; `requests` are (method, route, path) in the order in which they came."""

    daemon_threads = True

    def __init__(self, folder, port: int = 0, accounts: dict[str, Account] = ACCOUNTS):
        super().__init__(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.store, self.accounts = Store(folder), accounts
        self.requests: list[tuple[str, str, str]] = []
        self.faults: list[Fault] = []

    def start(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def stop(self):
        self.shutdown()
        self.server_close()

    def fail(self, route, kind, times=1, headers=None, seconds=0.0):
        """Make the next `times` requests of a route fail."""
        self.faults.append(Fault(route, kind, times, headers or {}, seconds))

    def take_fault(self, route):
        with self.store.lock:
            for fault in self.faults:
                if fault.route == route and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def routes(self):
        """Names of the routes that were asked, and a fresh start."""
        asked = [name for _, name, _ in self.requests]
        self.requests.clear()
        return asked


def environment(url, home, token="hf_user"):
    """What a client needs in its environment before it imports `huggingface_hub`."""
    return {
        "HF_ENDPOINT": url,
        "HF_TOKEN": token,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",  # it would ask huggingface.co's own storage
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1",
    }


def main():
    parser = argparse.ArgumentParser(description="A small hub of your own, on this machine only.")
    parser.add_argument("folder", help="Where it keeps what is pushed.")
    parser.add_argument("--port", type=int, default=8765)
    options = parser.parse_args()
    hub = HubServer(options.folder, options.port)
    shown = environment(hub.url, Path(options.folder).absolute() / "client")
    print("In the other shell, before anything else:\n", *(f"export {k}={v}" for k, v in shown.items()), sep="\n")
    try:
        hub.serve_forever()
    except KeyboardInterrupt:
        hub.stop()


if __name__ == "__main__":
    main()
