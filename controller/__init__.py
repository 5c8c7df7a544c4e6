"""The controller: a small durable quorum that decides which broker of each group is master.

Rooms inside, from the ground up: ``raft`` (consensus, log, snapshots, transport; knows nothing of brokers), the pure
metadata (``metadata``, ``commands``, ``election``, ``liveness``), and the shells that listen, watch and notify.
"""
