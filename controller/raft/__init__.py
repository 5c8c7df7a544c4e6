"""A durable Raft quorum inside trio.

The algorithm is pysyncobj's, used as a pure state machine; every edge of it is replaced:

* ``pinned``    the library, accepted only with the sources that were audited
* ``messages``  what travels between members: strict typed messages, no pickle
* ``journal``   log, term and vote in one checksummed file
* ``snapshot``  the state at one index in another
* ``sessions``  the replicated table that makes a retried command harmless
* ``core``      the algorithm with its unsafe parts overridden
* ``consensus`` one member as a pure object: messages and time in, messages and results out
* ``links``     connections between members, optionally with mutual TLS
* ``member``    the actor: one task that owns a consensus object and lets nothing leave before it is durable
"""
