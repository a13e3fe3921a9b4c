"""Factor for time limits of tests: a machine that has other work takes longer for the same test.

`TUBEMQ_TEST_PATIENCE` sets the factor. Without it the load decides: twice as many runnable
processes as processors double every limit. A limit here only ends what hangs; no test measures
speed by it. Standard library only: `make` runs commands under it before packages are installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "TUBEMQ_TEST_PATIENCE"

LARGEST: Final = 8.0
"""Upper bound where the load decides: a limit must still end a test that hangs."""


def patience(
    environment: Mapping[str, str] = os.environ,
    load: float | None = None,
    processors: int | None = None,
) -> float:
    """Return the factor, at least 1.

    Raises ValueError where the variable holds something else than a number of at least 1.
    """
    text = environment.get(VARIABLE, "").strip()
    if text:
        try:
            factor = float(text)
        except ValueError:
            factor = 0.0
        if not factor >= 1:
            raise ValueError(f"{VARIABLE}={text!r}: give a number of at least 1, such as 4")
        return factor
    runnable = os.getloadavg()[0] if load is None else load
    share = runnable / (processors or os.cpu_count() or 1)
    return min(max(share, 1.0), LARGEST)


PATIENCE: Final = patience()
"""The factor of this process, fixed when it starts."""
