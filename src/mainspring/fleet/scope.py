"""Keys of views and prefixes, set apart by who sent them.

Clients name what they scanned, nodes keep it under that name, and a request that finds it is faster: so whoever can
name another's view can find out that it is there. Therefore a client's keys mean something within its *realm* only:
what its certificate says (`mainspring pki issue client NAME --realm REALM`), else the client by itself. Gateways of one
fleet share a realm, salt keys by tenant, and so share views where they should and nowhere else. The same key of one
realm comes out the same for ever: a router that restarts knows what nodes kept.
"""

from hashlib import blake2b

from msgspec.structs import replace

from mainspring.wire import messages as m
from mainspring.wire.transport import Identity

KEY_BYTES = 20


def scoped(submit: m.Submit, identity: Identity) -> m.Submit:
    """The request with its keys as the router and nodes know them. No key stays none; prompts and views that go by one
    key are different things; a generation always has a salt, if only its realm's."""
    realm = realm_of(identity)
    if submit.max_tokens:
        realm += b"/prompt"
        submit = replace(submit, salt=scoped_key(submit.salt, realm))
    if not submit.view_key and not submit.prefix_keys:
        return submit
    prefixes = tuple((scoped_key(key, realm), tokens) for key, tokens in submit.prefix_keys)
    view_key = scoped_key(submit.view_key, realm) if submit.view_key else ""
    return replace(submit, view_key=view_key, prefix_keys=prefixes)


def realm_of(identity: Identity) -> bytes:
    """Names and realms have no slash, so neither can be mistaken for the other."""
    return (f"realm/{identity.realm}" if identity.realm else f"client/{identity.name}").encode()


def scoped_key(key: str, realm: bytes) -> str:
    """Of fixed length, whatever the key's."""
    return blake2b(realm + b"\0" + key.encode(), digest_size=KEY_BYTES).hexdigest()
