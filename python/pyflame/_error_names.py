"""The name at the beginning of an error: that of the function which the user called, where others compute it."""
import contextlib


@contextlib.contextmanager
def named(op, *inner):
    """Inside, an error whose text begins with one of these names begins with op instead."""
    try:
        yield
    except Exception as error:
        text = str(error)
        for name in inner:
            if text.startswith(f"{name}: "):
                raise type(error)(op + text[len(name):]) from None
        raise
