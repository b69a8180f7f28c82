"""Address validation by Retry (RFC 9000, 8.1.2): a token only who reads at its address can show.

    u64 expiry in ms | u8 length, original destination id | u8 length, retry source id | HMAC-SHA256

The HMAC is of the address and all before it, by a secret of this process. Good for ten seconds.
"""

import hmac
from secrets import token_bytes

TOKEN_S = 10.0
_MAC_BYTES = 32
_LONGEST_CID = 20


class Retry:
    def __init__(self) -> None:
        self._secret = token_bytes(32)

    def token(self, address: str, original: bytes, source: bytes, now_s: float) -> bytes:
        body = int((now_s + TOKEN_S) * 1000).to_bytes(8, "big")
        body += bytes([len(original)]) + original + bytes([len(source)]) + source
        return body + self._mac(address, body)

    def check(self, token: bytes, address: str, now_s: float) -> tuple[bytes, bytes] | None:
        """(original destination id, retry source id), None for a token that is not ours, or old, or another's."""
        body, mac = token[:-_MAC_BYTES], token[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(address, body)) or len(body) < 10:
            return None
        if int.from_bytes(body[:8], "big") < now_s * 1000:
            return None
        middle = 9 + body[8]
        return body[9:middle], body[middle + 1 : middle + 1 + _LONGEST_CID]

    def _mac(self, address: str, body: bytes) -> bytes:
        return hmac.digest(self._secret, address.encode() + b"\0" + body, "sha256")
