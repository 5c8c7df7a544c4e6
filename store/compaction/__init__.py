"""Compaction topics (``cleanup.policy=COMPACTION``): of each key the last message is kept as long as the topic lives.

The pure core is one question: from the records of the closed files of a queue to those that survive.

* A record's key is its whole KEYS property. A file is *closed* once a later one was begun; the last takes no part.
* A round first notes, for each key, the largest queue offset among the records that no round has seen yet, in order.
  The table of keys is bounded: once it is full, what comes behind the last record noted waits for the next round.
* Then every record of every closed file is asked. One behind the last record noted survives; one whose key was noted
  with a larger offset does not; any other one does, unless it is a *tombstone* and old.
* A tombstone is a record with an empty body. It supersedes what came before it as any record does, and is kept for a
  day after it was stored, so that consumers that were away learn of the deletion.
* Records keep their queue offsets and their order. So a queue becomes sparse, and offsets only rise.

Around it, per queue, are mapped files as the reference has them: the *compaction log* with copies of the records, and
beside each of its files a queue of units in the format of batch queues (:mod:`~understudy.store.compaction.layout`,
:mod:`~understudy.store.compaction.files`). What is stored is copied there from the ordinary queue, later and off every
hot path; readers get what is copied from there and the rest from the ordinary queue, so that nobody waits for the copy
(:mod:`~understudy.store.compaction.reading`). A round writes a new generation of the closed files and puts it in the
place of the old one, whole or not at all (:mod:`~understudy.store.compaction.rounds`,
:mod:`~understudy.store.compaction.swaps`).
"""
