"""A broker that a controller leads: its persistent id, and the role it is given.

``identity`` and ``command`` decide; the modules beside them speak with controllers and the disk.
"""
