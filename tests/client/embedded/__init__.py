"""Tests of the embedded server. A package, so that they share one client and one clock."""
