"""HTTP/1.1 from the client's side: one request, an answer that may trickle in, the connection kept for the next.

A library of its own, because a general one costs more than all else that a token needs: the pieces of an answer go from
the socket to a plain function, with no task woken in between. It knows nothing of models or files.
"""
