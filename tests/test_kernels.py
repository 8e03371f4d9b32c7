"""Every kernel module before its three judges."""

import cases
import judges
import pytest

QUICK = [c for c in cases.every() if not c.slow]


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_reference_matches_the_oracle(case):
    judges.check_yardstick(case)
