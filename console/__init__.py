"""A page in the browser that shows a cluster: who leads each group, who lags, what waits, and how a failover went.

:mod:`~understudy.console.model` turns answers of name servers and brokers into what is shown and is pure; the gatherer
asks them, only while somebody looks; the pages serve it over HTTP. Everything is asked by the remoting protocol's admin
requests, so the cluster may be anybody's.
"""
