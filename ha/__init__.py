"""Replication of the commit log between brokers of one group.

The plain wire (:mod:`wire`) knows offsets only: a slave reports how far its log reaches, the master sends what follows.
Decisions (who is in sync, whom to refuse, when a send is acknowledged) are functions of offsets in :mod:`replicas`;
:mod:`master` and :mod:`slave` move the bytes.
"""
