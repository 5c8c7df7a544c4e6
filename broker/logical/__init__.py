"""Requests for logical queues of static topics: turned into requests for the physical queues that have the messages.

:mod:`reading` decides, without I/O; :mod:`forwards` asks other groups for what lies there; :mod:`pulls` and
:mod:`offsets` stand before the handlers of ordinary queues, which answer for one physical queue each. A topic without a
mapping never comes here. Committed offsets are kept where the messages are: under the physical queue, as its offsets.
"""
