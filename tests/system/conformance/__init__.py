"""Tables of servers' answers, checked against the embedded one and a genuine one."""
