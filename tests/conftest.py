"""Shared by all tests: one thread, so that small products are not slowed by waiting for a busy second core."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
