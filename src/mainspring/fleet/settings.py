"""What the shell has to know of the configuration."""

from msgspec import Struct

from mainspring.core.nouns import DEFAULT_CLASSES, SloClass
from mainspring.fleet.admission import ModelRule
from mainspring.fleet.links import TOTAL_BYTES
from mainspring.fleet.payloads import DEFAULT_CAP_BYTES
from mainspring.wire.link import Rules


class Settings(Struct, frozen=True):
    """`rules` hold for every link; `payload_bytes` for the tokens of all open requests, `client_bytes` for
    those of one client's name; the totals are over all links."""

    classes: tuple[SloClass, ...] = DEFAULT_CLASSES
    models: dict[str, ModelRule] = {}
    rules: Rules = Rules()
    max_links: int = 1024
    payload_bytes: int = DEFAULT_CAP_BYTES
    client_bytes: int = DEFAULT_CAP_BYTES // 2
    unfinished_total_bytes: int = TOTAL_BYTES
    backlog_total_bytes: int = TOTAL_BYTES
