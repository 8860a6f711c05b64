"""Files that were damaged: cut off, with other bytes in them, or with other JSON values in their places."""

import json

from hypothesis import strategies as st

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
HOSTILE = [
    b"",
    b"\0",
    b"[" * 15_000,
    b'{"a":' * 3_000,
    b"9" * 5000,
    b"NaN",
    b"\xff\xfe{}",
    b"{}",
    b"[]",
    b'"x"',
    b"null",
]


@st.composite
def damaged(draw, whole: bytes):
    """The bytes of a file after an accident."""
    kind = draw(st.sampled_from(["cut", "bytes", "other", "hostile"]))
    if kind == "hostile":
        return draw(st.sampled_from(HOSTILE))
    if kind == "other":
        return draw(st.binary(max_size=60))
    place = draw(st.integers(0, len(whole) - 1))
    if kind == "cut":
        return whole[:place]
    found = draw(st.binary(min_size=1, max_size=9))
    return whole[:place] + found + whole[place + len(found) :]


@st.composite
def altered(draw, content):
    """A JSON value in which one place holds something else, or nothing."""
    if not isinstance(content, (dict, list)) or not content or draw(st.integers(0, 3)) == 0:
        return draw(JSON)
    copy = json.loads(json.dumps(content))
    key = draw(st.sampled_from(sorted(copy) if isinstance(copy, dict) else range(len(copy))))
    if draw(st.integers(0, 4)) == 0:
        del copy[key]
    else:
        copy[key] = draw(altered(copy[key]))
    return copy
