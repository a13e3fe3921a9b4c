"""Tools for the people who develop this project; nothing of it is shipped."""
