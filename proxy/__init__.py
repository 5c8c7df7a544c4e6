"""The proxy: clients of RocketMQ 5 speak gRPC to it, and it speaks the remoting protocol to brokers.

``grpc/`` is a gRPC server that knows nothing of RocketMQ, ``messages/`` what clients say, ``core/`` the rules as pure
functions from a request to what brokers are asked and from their answers to its answer, ``rpcs/`` the calls.
"""
