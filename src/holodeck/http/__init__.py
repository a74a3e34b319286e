"""HTTP/1.1 as models are asked over it: one POST, an answer that trickles in, the connection kept for the next.

A library of its own, because a general one costs more than all else that a token needs: its pieces go from the
socket to a plain function, with no task woken in between. It knows nothing of models.
"""
