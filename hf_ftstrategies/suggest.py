"""Help in error messages: the nearest known name, the type that was expected."""

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
    by_lower = {name.lower(): name for name in known}
    nearest = get_close_matches(word.lower(), by_lower, n=1)
    return f" Did you mean '{by_lower[nearest[0]]}'?" if nearest else ""


def check_type(name: str, value: object, *types: type) -> None:
    """Refuse a value of another type. An int is a float, a bool is no number.

    Args:
        name (`str`): Of the setting.
        value: What was given.
        *types (`type`): What it may be.

    Raises:
        ValueError: another type.
    """
    fits = isinstance(value, types) or (float in types and isinstance(value, int))
    if not fits or (isinstance(value, bool) and bool not in types):
        names = " or ".join("None" if t is type(None) else t.__name__ for t in types)
        raise ValueError(f"{name} is {value!r}: give a value of type {names}.")
