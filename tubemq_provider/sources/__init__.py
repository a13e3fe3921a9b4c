"""Where records come from: one package per kind of source, behind the seam in `base`.

Windows, files, sinks and offset stores know `base` only. A new kind brings its offset space, its
reader and its settings here, and a name in `windows.spaces.SOURCES`.
"""
