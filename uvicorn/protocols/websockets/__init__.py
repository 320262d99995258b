"""WebSocket (RFC 6455): one session, whichever library parses the frames."""
