"""The seam to the network: connections, deadlines, and drivers that run conversations.

The only room below the shells that may import sockets and clocks. Foreign exceptions are mapped to
`tubemq_client.errors` here and never cross it.
"""
