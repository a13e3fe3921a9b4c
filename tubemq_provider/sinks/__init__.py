"""Where records end up, each window with its marker, whole or not at all.

`factory` knows them all by name, one module each; modules with `_` in front are what several share.
Sinks decide nothing about windows: they stage, verify, publish atomically, and answer which windows
they have.
"""
