"""Kinds of sources: one package each, behind the protocols in `base`.

Windows, files, sinks, offset stores and `ingest` know `base` and `registry` only. A new kind adds
its offset space, its columns, its reader and its settings (see `registry`), and a name: in the
table `windows.spaces.SOURCES`, or as an entry point of another distribution.
"""
