"""The messages of one broker on disk.

Start with :mod:`~understudy.store.message_store`; everything else is behind it. The laws of this room:

* The commit log is the truth. Queues and index can be built from it, byte for byte, and are when they are lost.
* One writer. Appends, reads and cuts run on the event loop and never yield; only syncs run in worker threads.
* What is acknowledged after a synchronous flush survives a power loss; what is written survives a killed process.
* A start never refuses because of what it finds. Damage is cut off or fenced in, kept aside, and logged.
* Files are those of the reference, so that a Java broker opens what we wrote and we open what it wrote. Our one file
  more, ``recovery.mark``, only makes starts quick: without it everything is compared.
* The hot path makes no object per message that outlives the call. Answers are slices of the mapped log.

A message's way through the modules: ``writer`` (log, queue unit and index entries at once), ``flush`` (durable, then
visible), ``reader`` (slices), ``retention`` (gone when old). After a crash: ``recovery`` with ``walk``, ``mark``,
``queue_recovery`` and ``dispatch``. Pure: ``heads``, ``status``, ``config``; the record itself is in ``format``.
"""
