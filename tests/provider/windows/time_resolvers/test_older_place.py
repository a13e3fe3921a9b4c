"""What Dags have imported goes on being found."""

from __future__ import annotations

import importlib
import sys

import pytest

from tubemq_provider.windows.time_resolvers.boundaries import Boundaries


def test_dags_may_import_boundaries_from_where_they_were() -> None:
    sys.modules.pop("tubemq_provider.windows.time.boundaries", None)
    with pytest.warns(DeprecationWarning, match="time_resolvers"):
        module = importlib.import_module("tubemq_provider.windows.time.boundaries")
    assert module.Boundaries is Boundaries
