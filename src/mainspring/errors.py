"""The one hierarchy of errors, beneath every room.

Each class carries a stable `code` for programs; a message names the field and the limit for people. `param` is the path
of the offending field in the caller's data (`span.input[3].content`), None where there is none. Messages never quote
the text of a conversation: they end up in logs.
"""

from typing import ClassVar


class MainspringError(Exception):
    """Root of everything this package raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message if param is None else f"{param}: {message}")
        self.message = message
        self.param = param


class InputError(MainspringError):
    """The caller's data is at fault; sending it again unchanged fails again."""

    code = "bad_input"


class MalformedError(InputError):
    """Bytes that are not the JSON they should be; the message gives line and column."""

    code = "malformed"


class UnknownFormatError(InputError):
    """JSON that is no span format known here."""

    code = "unknown_format"


class SpanError(InputError):
    """A known format without a scorable conversation: wrong roles, an embedding call, nothing at all."""

    code = "bad_span"


class BehaviorError(InputError):
    """A behavior that can't be asked: definition too short, duplicate id, labels that are not one token each."""

    code = "bad_behavior"


class TooLargeError(InputError):
    """Something exceeds a limit; both figures are attributes."""

    code = "too_large"

    def __init__(self, message: str, *, limit: int, actual: int, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.limit = limit
        self.actual = actual


class ModelError(MainspringError):
    """The model folder is at fault."""

    code = "bad_model"


class CheckpointError(ModelError):
    """Config or weights: missing, misshaped, not finite, not safetensors, an architecture not served here."""

    code = "bad_checkpoint"


class TokenizerError(ModelError):
    """The tokenizer can't be loaded or does not belong to the weights."""

    code = "bad_tokenizer"


class TemplateError(ModelError):
    """A chat or scoring template that does not compile, fails, or exceeds its fuel or output cap."""

    code = "bad_template"


class DeviceError(MainspringError):
    """The device can't do what is asked: not there, too old, no kernel for a shape."""

    code = "bad_device"


class DeviceMemoryError(DeviceError):
    """The device is out of memory. What was being computed is lost, the process goes on."""

    code = "out_of_memory"
