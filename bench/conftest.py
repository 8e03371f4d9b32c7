"""Settings of ``pytest bench``: one thread of BLAS, as the contenders are compared with."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
