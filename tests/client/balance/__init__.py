"""Groups that the master balances: partition table, orders, and random lives of members."""
