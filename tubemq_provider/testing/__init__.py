"""Conformance suites for authors of plug-ins: what the built-in ones pass, as pytest classes.

A test inherits from the suite of its kind, and defines `make`:

    class TestMySink(SinkSuite):
        def make(self, tmp_path):
            return MySink(tmp_path / "lake")

- `source_suite.SourceSuite`, `sink_suite.SinkSuite`, `engine_suite.EngineSuite`,
  `resolver_suite.ResolverSuite` and `decoder_suite.DecoderSuite`
- `offset_store_suite.OffsetStoreSuite`, with `EventSuite` and `ClaimStoreSuite`

The suites need pytest, which nothing else in this package imports, and nothing that is shipped
imports this room.
"""
