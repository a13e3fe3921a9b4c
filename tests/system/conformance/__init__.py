"""Tables of what servers answer, played against the embedded one and a genuine one."""
