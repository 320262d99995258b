"""Random applications under random clients: the native core and the Python implementations must do the same.

A case is data made from a seed: some connections with good and bad requests, cut anywhere, half-closed or dropped; and
an application for each request, a list of operations that keep, change, use again, give up, nest and leave behind
whatever a server hands out. Each case runs on each implementation. Compared are the bytes that each client is sent, and
for each request what its application saw and what was raised in it. Besides, every request has a secret, and nothing of
a secret may be seen by another request or sent to another client.

``python -m tests.differential`` runs cases for some seconds; ``--seed`` runs one again.
"""
