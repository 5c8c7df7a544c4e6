"""The name server: which broker serves which topic, and who is alive.

``route_table`` and the modules around it decide, without sockets, files or clocks; ``processor`` turns requests into
events of the table and results into answers; ``server`` owns the sockets, the expiry timer and the notifications.
Nothing but key-value configuration and settings is kept on disk: brokers register again after a restart.
"""
