"""Apache RocketMQ as a source of windows: ranges of queue offsets, each of them one record.

`space` and `columns` are light, for executors; `source` looks and reads through `rocketmq_client`.
Beside the registry nothing of the provider names this kind.
"""
