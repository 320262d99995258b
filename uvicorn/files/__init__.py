"""Files as responses: those of `--mount`, and those that applications send by path or descriptor.

`mounted` answers requests below a mount, `representation` has the rules of RFC 9110 about conditions, ranges and
codings, `directory` opens files beneath a directory and never outside, `sending` copies a file to a connection. A sink
is all that is known of a connection here, and nothing of the protocol it speaks.
"""
