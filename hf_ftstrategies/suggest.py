"""The nearest known name, for error messages about a name we do not know."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the known name nearest to a misspelt one, as the tail of an error message.

    Args:
        word (`str`): The name that was given.
        known (`Iterable[str]`): The names that exist.

    Returns:
        `str`: `" Did you mean 'x'?"` with a leading space, or `""` when nothing is near enough.
    """
    nearest = get_close_matches(word, list(known), n=1)
    return f" Did you mean '{nearest[0]}'?" if nearest else ""
