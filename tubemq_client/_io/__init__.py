"""The seam to the network: connections, deadlines, and drivers that run conversations.

`blocking` and `asyncio_connection` are connections, `pool` and `asyncio_pool` keep them, `driver`
and `asyncio_driver` run conversations on them; modules named ``…_face`` are what a class has in
both shells. The only room below the shells that may import sockets and clocks. Foreign exceptions
are mapped to `tubemq_client.errors` here and never cross it.
"""
