"""The older place of `time_resolvers.boundaries`, for Dags that import `Boundaries` from here.

It goes with the next minor release. Importing this module warns, so that nothing here may.
"""

from __future__ import annotations

import warnings

from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

__all__ = ["Boundaries"]

warnings.warn(
    "tubemq_provider.windows.time.boundaries is "
    "tubemq_provider.windows.time_resolvers.boundaries now",
    DeprecationWarning,
    stacklevel=2,
)
