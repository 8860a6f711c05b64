"""What a user sees when something is wrong: one line, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

_TOKEN = re.compile(r"\bhf_\w{20,}")
_SECRET_OPTIONS = ("--hub_token", "--hub-token")
_HIDDEN = "***"


def print_error(error: Exception | str) -> None:
    """Print `error: ...` on stderr in one line, with tokens hidden; an indented list may follow.

    Brackets in it are no markup.
    """
    lines = hide_tokens(str(error)).splitlines()
    is_list = len(lines) > 1 and lines[1].startswith("  ")
    text = Text.assemble(("error:", "bold red"), " ", ("\n" if is_list else " ").join(lines))
    Console(stderr=True).print(text, soft_wrap=True)


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Turn what a dependency raises while a run is prepared into a `ValueError` of one line."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:  # of any kind: nothing has been trained, and `--debug` shows where it comes from
        raise ValueError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error


def hide_tokens(text: str) -> str:
    """Put `***` in the place of the Hub's tokens."""
    return _TOKEN.sub(_HIDDEN, text)


def hide_secrets(argv: Sequence[str]) -> list[str]:
    """A command line that may be shown to others: `***` instead of the values of `--hub_token`, and of tokens anywhere.

    Args:
        argv (`Sequence[str]`): The words.
    """
    shown, hide_next = [], False
    for word in argv:
        option, equals, _ = word.partition("=")
        is_secret = option in _SECRET_OPTIONS
        shown.append(_HIDDEN if hide_next else f"{option}={_HIDDEN}" if is_secret and equals else hide_tokens(word))
        hide_next = is_secret and not equals
    return shown
