"""Generated bodies through the product's decoders and through independent implementations.

`python -m tests.provider.rows.differential --inputs 1000000 --seed 7 --format avro` runs one format
at length; `test_*.py` run some thousands of inputs in CI. Where the product differs on purpose, the
rule is in the oracle of the format, and in docs/typed-rows.md.
"""
