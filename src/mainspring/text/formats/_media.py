"""Images, files, sound: a Media part each, bytes never kept.

Every spelling keeps a MIME type, a reference (URI, file id) and data somewhere inside the part; they are gathered by
key instead of by provider. `without_bytes` does the same to JSON that is shown as it stands (tool results, unknown
parts). Whatever is dropped is noted with its size.
"""

import re

from mainspring.text.formats._reading import Reading, compact, join, label
from mainspring.text.span import Json, Media, Part, Text

_MIME_KEYS = ("mime_type", "media_type", "mimeType", "mediaType", "contentType", "format")
_REFERENCE_KEYS = ("url", "uri", "file_id", "fileId", "file_uri", "fileUri", "id", "filename", "file_name")
_BYTES_KEYS = ("data", "file_data", "bytes", "b64_json", "base64", "content", "result", "image", "blob", "uint8Array")
_MAX_REFERENCE = 2048
_DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)?[^,]{0,200},", re.IGNORECASE)
_URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]+")


def media(r: Reading, value: dict[str, Json], where: str, modality: str) -> list[Part]:
    """One Media part (and a transcript's Text), from wherever the spelling keeps its MIME type and reference."""
    found: dict[str, str] = {}
    dropped = _gather(r, value, where, found)
    said = value.get("modality")
    if isinstance(said, str) and said:
        modality = said
    elif modality == "file" and found.get("mime", "").partition("/")[0] in ("image", "audio", "video"):
        modality = found["mime"].partition("/")[0]
    size = f", {dropped} characters or bytes of data dropped" if dropped else ""
    r.note("placeholder", where, f"{modality[:40]} shown as a marker{size}")
    parts: list[Part] = [Media(modality, found.get("mime"), found.get("reference"))]
    if transcript := found.get("transcript"):
        parts.append(Text(transcript))
    return parts


def _gather(r: Reading, value: dict[str, Json], where: str, found: dict[str, str]) -> int:
    """Fill `found` from this object and the objects inside; the characters of data met."""
    dropped = 0
    used = {"type", "modality"}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner.get("type") != "Buffer":
            used.add(key)
            dropped += _gather(r, inner, join(where, key), found)
        elif key in _BYTES_KEYS and not (isinstance(inner, str) and (_URI.match(inner) or _DATA_URI.match(inner))):
            used.add(key)
            dropped += len(compact(inner)) if inner is not None else 0
        elif isinstance(inner, str) and (match := _DATA_URI.match(inner)):
            used.add(key)
            dropped += len(inner) - match.end()
            if match[1]:
                found.setdefault("mime", match[1])
        elif isinstance(inner, str) and key in _MIME_KEYS:
            used.add(key)
            found.setdefault("mime", inner)
        elif isinstance(inner, str) and key == "transcript":
            used.add(key)
            found.setdefault("transcript", inner)
        elif _is_reference(key, inner) and found.setdefault("reference", inner) == inner:
            used.add(key)
    r.unread(value, where, used)
    return dropped


def _is_reference(key: str, value: Json) -> bool:
    named = isinstance(value, str) and (key in _REFERENCE_KEYS or _URI.match(value) is not None)
    return named and 0 < len(value) <= _MAX_REFERENCE


def without_bytes(r: Reading, value: Json, where: str) -> Json:
    """`value` with the payloads of data: URIs and of fields beside a MIME type dropped and noted."""
    if isinstance(value, str):
        if match := _DATA_URI.match(value):
            r.note("placeholder", where, f"{len(value) - match.end()} characters of data dropped")
            return value[: match.end()]
        return value
    if isinstance(value, list):
        return [without_bytes(r, inner, f"{where}[{i}]") for i, inner in enumerate(value)]
    if not isinstance(value, dict):
        return value
    mime = label(*(value.get(key) for key in _MIME_KEYS))
    kept = {}
    for key, inner in value.items():
        path = join(where, key)
        if mime and key in _BYTES_KEYS and not _is_plain(value, mime) and _is_payload(inner):
            r.note("placeholder", path, f"data of a part ({len(inner)} characters or bytes) dropped")
        else:
            kept[key] = without_bytes(r, inner, path)
    return kept


def _is_plain(value: dict[str, Json], mime: str) -> bool:
    return (
        value.get("type") == "text" or (mime.startswith("text/") and value.get("type") != "base64") or "/" not in mime
    )


def _is_payload(value: Json) -> bool:
    """Base64 or a list of bytes, as against text that happens to lie beside a MIME type."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(byte, int) for byte in value)
    return isinstance(value, str) and _BASE64.fullmatch(value[:512]) is not None
