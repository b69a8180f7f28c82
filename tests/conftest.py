"""Shared by all tests: one thread, so that small products are not slowed by waiting for a busy second core; no deadline
for an example, since a busy machine is no fault of the code's; and without an NVIDIA driver Triton's kernels go through
its interpreter, which has to be said before the first kernel is defined.
"""

import os
import shutil

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRITON_INTERPRET", "1" if shutil.which("nvidia-smi") is None else "0")
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
