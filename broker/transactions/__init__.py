"""Transactions: half messages, what producers decide about them, and the checks of those that are undecided.

:mod:`half` says what is stored, :mod:`ledger` which half messages of a queue are decided, :mod:`ops` how decisions are
kept in the log, :mod:`judgement` what becomes of a decision, and :mod:`checking` what becomes of a half message that
nobody decides. All of these are pure. :mod:`service` carries decisions out and :mod:`checks` what the lack of one asks
for; both write by :mod:`log`.

Source: TransactionalMessageServiceImpl.java, TransactionalMessageBridge.java, EndTransactionProcessor.java.
"""
