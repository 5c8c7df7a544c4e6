"""The port for clients of the remoting protocol: what they ask goes on to brokers as it came.

Every client has connections of its own to brokers, through which it is as if it were there itself: brokers know it by
its heartbeats, count it among its group, and ask it. So any proxy will do for any client, and mqadmin sees them all.
"""
