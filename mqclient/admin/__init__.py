"""Operators' requests as functions of an open session.

Every one raises :class:`~understudy.mqclient.errors.ClientError` when a server refuses or does not answer.
"""
