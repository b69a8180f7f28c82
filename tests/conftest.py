"""Shared by all tests: one thread, so that small products are not slowed by waiting for a busy second core; and without
an NVIDIA driver Triton's kernels go through its interpreter, which has to be said before the first kernel is defined.
"""

import os
import shutil

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRITON_INTERPRET", "1" if shutil.which("nvidia-smi") is None else "0")
