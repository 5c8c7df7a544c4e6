"""Who asks, and what they may do: signatures, users, policies and the needs of every request; pure but for its edges.

The laws of the room:

* Every request code has its needs in one table (:mod:`~understudy.security.needs`); what is not in it is refused.
* A request is refused by its signature before anything in it is read.
* Nothing here is called unless a server was told to ask for signatures.
"""
