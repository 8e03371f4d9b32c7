"""The benchmark suite: fastnplm beside its peers on the same work.

    python -m bench            the whole suite, in pieces of under a minute each
    python -m bench --quick    the essentials
    python -m bench.steps --size S --threads 1 --rounds 5
    pytest bench               the same contenders under pytest-benchmark

Every contender does the same work on the same data, in a process of its own; its result is
compared with a float64 step before it is timed; rounds are interleaved, so that ratios come from
the same minute of the same machine. Run from a checkout.
"""
