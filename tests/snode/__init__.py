"""Tests of the RocketMQ client, room by room; scenarios run on the embedded and genuine servers."""
