"""An HTTP/1.1 client: one request, an answer that may trickle in, and the connection kept for the next request.

We wrote our own because a general library costs more than all our other work for a token: here the pieces of an answer
go from the socket to a plain function, and no task is woken in between. This package knows nothing of models or files.
"""
