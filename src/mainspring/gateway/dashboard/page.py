"""The page's files, read once, under a policy that lets the page load nothing but itself.

No inline script or style, no HTML made of strings (trusted types), no frame around it, no request to anybody else.
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = MappingProxyType(
    {
        "content-security-policy": POLICY,
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "cache-control": "no-cache",
    }
)
INDEX = "index.html"


@dataclass(frozen=True)
class Asset:
    body: bytes
    headers: dict[str, str]


def load() -> dict[str, Asset]:
    """By file name, everything in `static/`."""
    assets = {}
    for file in (files("mainspring.gateway.dashboard") / "static").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
            assets[file.name] = Asset(body, {**HEADERS, "content-type": kind, "etag": etag})
    return assets


def answer(request: Request, asset: Asset) -> Response:
    """304 where the browser has it already."""
    known = (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(","))
    if asset.headers["etag"] in known:
        return Response(status_code=304, headers=asset.headers)
    return Response(asset.body, headers=asset.headers)
