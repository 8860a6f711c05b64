"""What tests do in the client's process; nothing here is imported before its environment is set."""

import time

WAITS = []


def start():
    """Wait for nothing from now on."""
    time.sleep = WAITS.append


def waits():
    """The waits since the last call, in seconds."""
    found = WAITS.copy()
    WAITS.clear()
    return found


def call(name, *args, **kwargs):
    """A method of `HfApi`."""
    from huggingface_hub import HfApi

    return getattr(HfApi(), name)(*args, **kwargs)


def download(repo, path, revision=None):
    """The bytes of a file of a repository, which are not taken from the cache."""
    from huggingface_hub import hf_hub_download

    with open(hf_hub_download(repo, path, revision=revision, force_download=True), "rb") as file:
        return file.read()
