"""Building on another machine, such as an ARM server, instead of on this machine."""
