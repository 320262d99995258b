"""HTTP/1.1 as bytes: heads and bodies read, responses written.

Functions and state machines without a transport, a clock, a setting or an application: bytes in and events out,
messages in and bytes out. The native crate `wire` does the same in Rust.
"""
