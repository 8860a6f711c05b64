"""What a call gives for random input: a result, or one `ValueError` with a message."""


def attempt(call):
    """The result of `call()` and None, or None and the message of its `ValueError`.

    Everything else fails the test, also subclasses of `ValueError` such as `UnicodeDecodeError`, which come from
    dependencies and say nothing of cause and remedy.
    """
    try:
        return call(), None
    except ValueError as error:
        if type(error) is not ValueError or len(str(error)) < 20:
            raise
        return None, str(error)
