"""Shared by all tests: one thread, so that small products are not slowed by waiting for a busy second core; and no
deadline for an example, since a busy machine is no fault of the code's."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
