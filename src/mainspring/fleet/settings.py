"""What the shell has to know of the configuration."""

from msgspec import Struct

from mainspring.core.nouns import DEFAULT_CLASSES, SloClass
from mainspring.fleet.admission import ModelRule
from mainspring.fleet.payloads import DEFAULT_CAP_BYTES
from mainspring.wire.link import Rules


class Settings(Struct, frozen=True):
    """`rules` hold for every link; `payload_bytes` for the tokens of all open requests."""

    classes: tuple[SloClass, ...] = DEFAULT_CLASSES
    models: dict[str, ModelRule] = {}
    rules: Rules = Rules()
    max_links: int = 1024
    payload_bytes: int = DEFAULT_CAP_BYTES
