"""The rules that both languages go by: limits, reasons, texts.

Numbers that a peer can push, reasons to refuse a request or fail a WebSocket, and what logs and exceptions say. Most of
it is written for the native core from here, by `scripts/sync-settings`. Time that a blocked event loop owes its peers
(`grace`) and the shortcuts of each interpreter are rules as well. Nothing here knows a connection or a setting.
"""
