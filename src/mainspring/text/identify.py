"""`python -m mainspring.text.identify`: unpack the bundle on standard input; print `ready` first, then its hash.

For processes that hold bundles and read none (routers) and for bytes from strangers: whatever they make a parser do
stays in this process, which has bounded memory and time. Exit status 2 and a reason on standard error where the bytes
are no bundle.
"""

import os
import sys
from contextlib import suppress

MEMORY_BYTES = 4 << 30
"""64 MiB of JSON, the most that a bundle unpacks to, took 1.7 GiB at worst (a list of empty lists or maps)."""
CPU_S = 30
"""Whoever asked may be gone by then."""
NOT_ONE = 2
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
"""Address space is limited, and libraries reserve some for each core."""


def main() -> int:
    confine()
    from mainspring.errors import MainspringError
    from mainspring.text.bundle import PACK_BYTES, Bundle

    print("ready", flush=True)
    try:
        print(Bundle.unpack(sys.stdin.buffer.read(PACK_BYTES + 1)).hash)
    except MainspringError as error:
        print(str(error)[:500], file=sys.stderr)
        return NOT_ONE
    return 0


def confine() -> None:
    """Limits of the system's, where it has such; one thread. Before anything large is imported."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        import resource
    except ImportError:
        return
    for what, limit in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (limit, limit))


if __name__ == "__main__":
    sys.exit(main())
