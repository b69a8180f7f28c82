"""A fault that quotes what it choked on."""

WORDS = "my doctor says"
"""Of a conversation: no log may have them."""


def shout(*_: object, **__: object) -> object:
    """Raises, a cause behind it, both with the words in their messages."""
    try:
        raise ValueError(f"can't read {WORDS!r}")
    except ValueError as error:
        raise RuntimeError(f"while at {WORDS}") from error
