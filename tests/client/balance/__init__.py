"""Groups that the master balances: partition table, orders, and random histories of members."""
