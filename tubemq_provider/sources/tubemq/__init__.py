"""TubeMQ as a source: what its offsets and keys mean.

`space` is the value that all arithmetic goes by. Only here, in the client, and in the surfaces made
for TubeMQ alone may code know an index entry's size or a store.
"""
