"""The ways from an instant to offsets: one module per resolver, and the arithmetic of samples.

Each resolver keeps the protocol `TimeResolver` of `planning.instants`. They read through callables
and open no connection; which one is used, and with what, is said where a run is put together.
"""
