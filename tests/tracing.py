"""How much memory a call takes, measured from inside (NumPy reports its arrays too)."""

import tracemalloc


def peak_of(call):
    """Bytes above the start at the highest point of ``call()``."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
