import pytest

from hf_ftstrategies.suggest import check_type, did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("layer_deacy", ["layer_decay", "mixout"], " Did you mean 'layer_decay'?"),
        ("mixout", {"mixout": 0.9}, " Did you mean 'mixout'?"),
        ("xyz", ["layer_decay", "mixout"], ""),
        ("mixout", [], ""),
    ],
)
def test_nearest_known_name_is_suggested(word, known, expected):
    assert did_you_mean(word, known) == expected


def test_case_does_not_matter():
    assert did_you_mean("GRADUAL", ["gradual", "head"]) == " Did you mean 'gradual'?"
    assert did_you_mean("sun", ["Sun"]) == " Did you mean 'Sun'?"


@pytest.mark.parametrize(
    ("value", "types"), [(1, (float,)), (0.5, (float,)), (None, (int, type(None))), (True, (bool,))]
)
def test_check_type_takes(value, types):
    assert check_type("x", value, *types) is None


@pytest.mark.parametrize(("value", "types"), [("1", (float,)), (1.5, (int,)), (True, (int,)), (None, (int,))])
def test_check_type_refuses(value, types):
    with pytest.raises(ValueError, match=r"x is .*: give a value of type"):
        check_type("x", value, *types)
