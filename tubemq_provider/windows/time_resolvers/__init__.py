"""Time resolvers: one module per resolver, and the arithmetic of samples.

Each resolver implements the protocol `TimeResolver` of `planning.instants`. They read through
callables and open no connection; `ingest.resolvers` chooses and configures one.
"""
