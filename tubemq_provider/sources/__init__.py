"""Where records come from: one package per kind of source, behind the seam in `base`.

Windows, files, sinks, offset stores and `ingest` know `base` and `registry` only. A new kind brings
its offset space, its columns, its reader and its settings (see `registry`), and a name: in the
table `windows.spaces.SOURCES`, or as an entry point of its own distribution.
"""
