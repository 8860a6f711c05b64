import pytest

from hf_ftstrategies.pipeline.arguments import RunArguments, divide_batch


@pytest.mark.parametrize(
    ("whole", "per_device", "processes", "expected"),
    [
        (24, 24, 1, (24, 1)),
        (24, 24, 4, (6, 1)),
        (24, 6, 1, (6, 4)),
        (24, 5, 1, (4, 6)),
        (24, 7, 2, (6, 2)),
        (32, 64, 1, (32, 1)),
        (7, 4, 1, (1, 7)),
    ],
)
def test_global_batch(whole, per_device, processes, expected):
    size, accumulation = divide_batch(whole, per_device, processes)
    assert (size, accumulation) == expected
    assert size * accumulation * processes == whole


@pytest.mark.parametrize(("layers", "parsed"), [("last4", "last4"), ("3", 3), ("0, 5", [0, 5]), ("-1", -1)])
def test_layers(layers, parsed):
    assert RunArguments(layers=layers).classifier_settings()["layers"] == parsed
    assert RunArguments().classifier_settings() == {}


@pytest.mark.parametrize(("whole", "processes"), [(24, 5), (2, 4)])
def test_a_batch_that_cannot_be_shared(whole, processes):
    with pytest.raises(ValueError, match=f"{whole}, which {processes} processes"):
        divide_batch(whole, 8, processes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"test_rows": 0}, "test_rows is 0"), ({"split_scheme": "zang"}, "zhang"), ({"dataset": ""}, "--dataset")],
)
def test_refuses(settings, message):
    with pytest.raises(ValueError, match=message):
        RunArguments(**settings)
