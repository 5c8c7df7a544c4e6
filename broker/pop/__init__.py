"""Pop consumption: the broker hands out messages for a time and waits for their acknowledgements.

The story of a popped message:

1. A pop reads a queue from where the group is (:mod:`choice` says which queues, in which order) and answers with the
   records and a *receipt handle* for each (:mod:`understudy.format.receipts`).
2. Before that it writes a *check point* (:mod:`revive_log`): which messages went out, when, for how long. It is a timer
   message that comes into the revive topic when the invisible time is nearly over. The group's offset moves behind it.
3. An acknowledgement is a message of the same kind and finds its check point in the same queue of the revive topic.
4. The *revive service* reads that queue (:mod:`window`): what has no acknowledgement goes to the group's retry topic,
   where the next pop finds it.

In order (:mod:`order`) there is no check point: the broker remembers what a queue handed out, and hands out nothing
more of it until all of that is acknowledged or its time is over.

Source: PopMessageProcessor.java, AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java, PopReviveService.java,
PopBufferMergeService.java, ConsumerOrderInfoManager.java.
"""
