"""Windows from RocketMQ, through the planners, stores, engines and sinks that every source has."""
