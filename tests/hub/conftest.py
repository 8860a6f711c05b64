import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from unittest.mock import patch

import pytest

from tests.hub import client
from tests.hub.server import HubServer, environment


@pytest.fixture(scope="module")
def hub_and_client(tmp_path_factory):
    """A hub, and a clean process that knows no other: its environment is there before anything is imported.

    `client.submit(function, ...)` runs there; what it returns or raises comes back. It waits for nothing, and keeps
    the waits it was told to make in `client.WAITS`.
    """
    hub = HubServer(tmp_path_factory.mktemp("hub")).start()
    settings = environment(hub.url, tmp_path_factory.mktemp("home"))
    with patch.dict(os.environ, settings | {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "OMP_NUM_THREADS": "1"}):
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=client.start)
        pool.submit(os.getpid).result()
    yield hub, pool
    pool.shutdown()
    hub.stop()


@pytest.fixture
def hub(hub_and_client):
    """The hub, empty, with nothing wrong and nothing asked yet."""
    hub = hub_and_client[0]
    hub.store.clear()
    hub.requests.clear()
    hub.faults.clear()
    return hub


@pytest.fixture
def run(hub_and_client):
    """Call a function in the client's process."""
    pool = hub_and_client[1]

    def call(function, *args, **kwargs):
        return pool.submit(function, *args, **kwargs).result(timeout=300)

    return call
