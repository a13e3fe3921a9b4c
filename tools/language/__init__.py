"""Checks of the project's language: openings of docstrings, refused words, proofs of renames.

`words` fails a build on a docstring that begins with a bare clause and on words of `refused.toml`.
`same_tree` proves that a change of words left the code as it was.
"""
