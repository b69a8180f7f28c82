"""A model folder from a path, a hub id, or the name of a model in this package: "embedded", the small scorer, and
"writer". The hub client is an extra.

Only what a model needs is fetched: safetensors, JSON and templates, never code or pickles. A pinned revision makes the
weights a matter of record; without one the hub's default branch is taken.
"""

import re
from importlib.resources import files
from pathlib import Path

from mainspring.errors import ModelError

EMBEDDED, WRITER = "embedded", "writer"
PACKAGED = {EMBEDDED: "scorer", WRITER: "writer"}
WEIGHTS = ("*.safetensors",)
WANTED = ("*.json", "*.jinja", "LICENSE*", "README.md")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


class HubError(ModelError):
    """A model that is neither a folder here nor to be had from the hub; the message says what to do."""

    code = "model_not_found"


def model_folder(
    path_or_id: str | Path, *, revision: str | None = None, token: str | None = None, weights: bool = True
) -> Path:
    """The local folder of a model; a hub id `owner/name` is downloaded, once, with progress on stderr.

    A folder of the name comes first, so that one called "embedded" can be used.

    `token` is a private hub's; None takes the one the hub client finds (environment or login). `weights` False fetches
    what a bundle needs and no more. Raises HubError.
    """
    name = str(path_or_id)
    try:
        folder = Path(path_or_id).expanduser()
        if name and folder.is_dir():  # an empty name would be the working folder
            return folder
        taken = folder.exists()
    except (OSError, RuntimeError):  # a name too long for the system, the home of nobody
        taken = True
    if name in PACKAGED:
        return Path(str(files("mainspring") / "data" / PACKAGED[name]))
    if taken or not _HUB_ID.fullmatch(name):
        raise HubError(f"{name!r} is no folder here and no hub id of the form owner/name")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise HubError(f"{name!r} is no folder here; to fetch it from a hub: pip install 'mainspring[hub]'") from None
    patterns = [*WANTED, *(WEIGHTS if weights else ())]
    try:
        return Path(snapshot_download(name, revision=revision, token=token, allow_patterns=patterns))
    except Exception as error:  # the client has errors of its own, of its HTTP and transfer libraries and the system's
        # Their messages may hold the request's headers or a signed address: only the kind is passed on.
        raise HubError(
            f"{name!r}{f' at revision {revision}' if revision else ''} can't be fetched ({type(error).__name__}): "
            "check the name, the network and, for a private model, the token"
        ) from None
