"""Talk to a Hub that may be slow, busy or away: some more attempts, and then one sentence about what is wrong.

The client repeats uploads and downloads by itself, but neither commits nor questions, and it waits for ever for a
server that says nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError, LocalTokenNotFoundError
from huggingface_hub.utils import get_session

WAITS = (1, 2, 4, 8)  # seconds between attempts, as those of the client
LONGEST_WAIT = 60  # seconds, also where the Hub asks for more
TIMEOUT = 60  # seconds without a byte
PASSING = (408, 409, 412, 429, 500, 502, 503, 504)
FAULTS = (HTTPError, OSError, RuntimeError, ValueError)
TOKENS_PAGE = "https://huggingface.co/settings/tokens"
REASONS = {
    401: f"the Hub does not know the token. Make one with the role write at {TOKENS_PAGE}, then `hf auth login`.",
    403: f"the token may not write there. Make one with the role write at {TOKENS_PAGE}, then `hf auth login`.",
    404: "there is no such repository, or the token may not see it.",
    409: "somebody else is changing the repository.",
    412: "somebody else is changing the repository.",
    429: "the Hub asks for fewer requests. Wait some minutes.",
}

Result = TypeVar("Result")


def attempt(action: Callable[[], Result], failed: str, advice: str = "") -> Result:
    """Do something until it succeeds, or until waiting does not help.

    Args:
        action (`Callable`): Asks the Hub; it can be done twice.
        failed (`str`): Begins the message, such as `"Cannot push to 'user/name'"`.
        advice (`str`, *optional*): Ends it.

    Returns:
        What the action returns.

    Raises:
        ValueError: the action failed: what went wrong, and what to do.
    """
    waits = iter(WAITS)
    while True:
        try:
            with _time_limit():
                return action()
        except FAULTS as error:
            wait = next(waits, None) if _may_pass(error) else None
            if wait is None:
                raise ValueError(f"{failed}: {_reason(error)} {advice}".rstrip()) from error
            time.sleep(max(wait, _asked_wait(error)))


@contextmanager
def _time_limit() -> Iterator[None]:
    session = get_session()
    before, session.timeout = session.timeout, TIMEOUT
    try:
        yield
    finally:
        session.timeout = before


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _answered(error: BaseException) -> BaseException | None:
    """The cause that has an answer of the Hub with it, or None."""
    return next((cause for cause in _causes(error) if getattr(cause, "response", None) is not None), None)


def _may_pass(error: BaseException) -> bool:
    refusal = _answered(error)
    if refusal is not None:
        return refusal.response.status_code in PASSING
    # a connection that failed, or the page of a gateway where JSON was expected
    return any(isinstance(cause, (HTTPError, json.JSONDecodeError)) for cause in _causes(error))


def _asked_wait(error: BaseException) -> int:
    refusal = _answered(error)
    asked = "" if refusal is None else refusal.response.headers.get("Retry-After", "")
    return min(int(asked), LONGEST_WAIT) if asked.isdigit() else 0


def _reason(error: BaseException) -> str:
    if isinstance(error, LocalTokenNotFoundError):
        return "there is no token. Use `hf auth login`, or set HF_TOKEN."
    refusal = _answered(error)
    if refusal is not None:
        status, said = refusal.response.status_code, str(refusal).splitlines()[-1]
        if status >= 500:
            return f"the Hub is out of order (status {status})."
        return REASONS.get(status, f"the Hub refused it ({status}: {said}).")
    if _may_pass(error):
        last = list(_causes(error))[-1]
        return f"no answer from {HfApi().endpoint} ({type(last).__name__}: {last})."
    return (str(error) or type(error).__name__).splitlines()[0]
