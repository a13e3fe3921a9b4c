"""Network layer: connections, deadlines, and drivers that run conversations.

`blocking` and `asyncio_connection` are connections, `pool` and `asyncio_pool` keep them, `driver`
and `asyncio_driver` run conversations on them; modules named ``…_face`` are bases of classes of
both APIs. The only package below the two APIs that may import sockets and clocks. Foreign
exceptions are mapped to `tubemq_client.errors` here and never leave it.
"""
