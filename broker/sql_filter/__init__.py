"""SQL92 conditions over the properties of a message: text to tree to function, without knowing a broker or a store.

`expression.py` is the door: :func:`~understudy.broker.sql_filter.expression.compile_expression`.
"""
