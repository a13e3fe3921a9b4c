"""Sensors: tasks that wait until a topic can be read, or until there is something to read.

Thin over the hook. They look at ends exactly as a window would plan them (stable ends by default),
or they would ring for data that a window may not take yet.
"""
