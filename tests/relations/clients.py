"""The clients of a case, byte by byte: what they send and when, and what they are sent."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
from typing import Any

from tests.relations.case import WEBSOCKET, Case
from tests.relations.player import TOKEN, Application

_ANSWER = re.compile(rb"<(\d+)\.(\d+b?)>")

_MASK = b"\x11\x22\x33\x44"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS = 0, 1, 3, 4
_CLOSE = 8


def ws_frame(opcode: int, payload: bytes) -> bytes:
    """One whole frame, as a client sends it."""
    masked = bytes(byte ^ _MASK[place % 4] for place, byte in enumerate(payload))
    return bytes((0x80 | opcode, 0x80 | len(payload))) + _MASK + masked


def h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame of HTTP/2."""
    return struct.pack("!I", len(payload))[1:] + bytes((kind, flags)) + struct.pack("!I", stream) + payload


def h2_fields(*fields: tuple[bytes, bytes]) -> bytes:
    """Fields without compression (RFC 7541 section 6.2.2)."""
    return b"".join(b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value for name, value in fields)


class Frames:
    """What the server sends on a WebSocket: the client answers its close."""

    def __init__(self) -> None:
        self._data = b""
        self._head_is_read = False

    def feed(self, data: bytes, *, with_head: bool) -> bytes:
        """Take bytes; what the client sends at once because of them."""
        self._data += data
        if with_head and not self._head_is_read:
            _, end, rest = self._data.partition(b"\r\n\r\n")
            if not end:
                return b""
            self._head_is_read, self._data = True, rest
        answer = b""
        while len(self._data) >= 2:
            first, length = self._data[:2]
            start = 2
            if length == 126:
                start, length = 4, int.from_bytes(self._data[2:4], "big")
            elif length == 127:
                start, length = 10, int.from_bytes(self._data[2:10], "big")
            if len(self._data) < start + length:
                break
            if first & 0x0F == _CLOSE:
                answer += ws_frame(_CLOSE, self._data[start : start + length])
            self._data = self._data[start + length :]
        return answer


class EncryptedSocket:
    """A socket with TLS, whose calls never wait: the server that answers runs in the same thread."""

    def __init__(self, sock: socket.socket, h2: bool) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2" if h2 else "http/1.1"])
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self._unsent = b""
        self._is_open = False

    def _push(self) -> None:
        self._unsent += self._outgoing.read()
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]

    def _pull(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := self._sock.recv(262_144):
                self._incoming.write(data)
            self._incoming.write_eof()
        if not self._is_open:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                self._is_open = True
        self._push()

    def send(self, data: bytes) -> int:
        """Send all of it, or none before the handshake is done."""
        self._pull()
        if not self._is_open or self._unsent:
            raise BlockingIOError
        sent = self._tls.write(data)
        self._push()
        return sent

    def recv(self, size: int) -> bytes:
        """Take what there is: nothing at the end."""
        self._pull()
        if not self._is_open:
            if self._incoming.eof:
                return b""
            raise BlockingIOError
        try:
            return self._tls.read(size)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLEOFError:
            return b""

    def setsockopt(self, *arguments: Any) -> None:
        """Set an option of the socket beneath."""
        self._sock.setsockopt(*arguments)

    def shutdown(self, how: int) -> None:
        """Say that nothing more is sent."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._push()
        self._sock.shutdown(how)

    def close(self) -> None:
        """Close the socket beneath."""
        self._sock.close()


def arrived(sock: socket.socket | EncryptedSocket) -> tuple[bytes, bool]:
    """Take all that has come; and whether nothing follows."""
    found = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            try:
                data = sock.recv(262_144)
            except ConnectionError:
                data = b""
            if not data:
                return found, True
            found += data
    return found, False


class Connection:
    """A socket, and the participants on it."""

    def __init__(self, case: Case, members: list[int], protocol: str, address: Any, *, tls: bool) -> None:
        self.case = case
        self.members = members
        #: Over HTTP/3 clients speak HTTP/2 as well, and a socket of their own translates.
        self.is_h2 = protocol != "http/1"
        self.sock: Any
        if protocol == "http/3":
            from tests.relations.http3 import HTTP3Socket

            self.sock = HTTP3Socket(address)
        else:
            sock = socket.create_connection(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            self.sock = EncryptedSocket(sock, self.is_h2) if tls else sock
        #: What is sent in this turn, and what in the next ones.
        self.outbox: list[bytes] = []
        self.output = b""
        self.closed = self.half_closed = False
        self.frames = {member: Frames() for member in members}
        self.sent = dict.fromkeys(members, 0)
        self.is_cut = self.paused = False
        #: Participants whose client has said that nothing follows on their stream.
        self.ended: set[int] = set()
        self._h2_input = b""
        if self.is_h2:
            self.outbox.append(_PREFACE + h2_frame(_SETTINGS, 0, 0, b""))

    def stream(self, member: int) -> int:
        """The id of a participant's stream."""
        return 1 + 2 * self.members.index(member)

    def total(self, member: int) -> int:
        """How many messages a participant is sent in all."""
        return len(self.case.scenes_of(member))

    # Sending.

    def open(self, member: int) -> bytes:
        """What a session or request begins with."""
        session = self.case.participants[member].kind == WEBSOCKET
        path = b"/p%d" % member
        size = b"%d" % (self.total(member) * TOKEN)
        if self.is_h2:
            fields = [(b":scheme", b"http"), (b":path", path), (b":authority", b"a")]
            if session:
                fields = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), *fields]
                fields.append((b"sec-websocket-version", b"13"))
            else:
                fields = [(b":method", b"POST"), *fields]
            empty = not session and not self.total(member)
            return h2_frame(_HEADERS, 5 if empty else 4, self.stream(member), h2_fields(*fields))
        if session:
            return (
                b"GET %b HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % path
            )
        return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %b\r\n\r\n" % (path, size)

    def message(self, member: int, text: bytes, last: bool = False) -> bytes:
        """A message for the application of a participant."""
        if self.case.participants[member].kind == WEBSOCKET:
            frame = ws_frame(1, text)
            return h2_frame(_DATA, 0, self.stream(member), frame) if self.is_h2 else frame
        return h2_frame(_DATA, int(last), self.stream(member), text) if self.is_h2 else text

    def leave(self, member: int, how: str) -> None:
        """Have the client of a participant go, in one of three ways."""
        if self.closed or member in self.ended:
            return
        session = self.case.participants[member].kind == WEBSOCKET
        if self.is_h2 and session and how == "close":
            self.outbox.append(h2_frame(_DATA, 0, self.stream(member), ws_frame(_CLOSE, struct.pack("!H", 1000))))
        elif self.is_h2:
            # An end of its body would not say that the client leaves.
            self.outbox.append(h2_frame(_RST_STREAM, 0, self.stream(member), struct.pack("!I", 8)))
            self.ended.add(member)  # an answer to a close that crosses the reset would be an error of the connection
        elif how == "half-close":
            self.half_closed = True
        else:
            if how == "reset":
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close()

    def flush(self) -> int:
        """Send what is to be sent in this turn, in one write, as far as possible; how much it was."""
        if self.closed or not self.outbox:
            if self.half_closed and not self.closed:
                self.half_closed = False
                with contextlib.suppress(OSError):
                    self.sock.shutdown(socket.SHUT_WR)
            return 0
        data = b"".join(self.outbox)
        if self.is_cut and len(data) > 1:
            self.outbox, data = [data[len(data) // 2 :]], data[: len(data) // 2]
            self.is_cut = False
        else:
            self.outbox = []
        try:
            taken: int = self.sock.send(data)
        except BlockingIOError:
            taken = 0
        except OSError:
            taken = len(data)
        if taken < len(data):
            self.outbox.insert(0, data[taken:])
        return taken

    # Reading.

    def read(self) -> int:
        """Take what there is; how much it was."""
        size = 0
        while not (self.closed or self.paused):
            try:
                data = self.sock.recv(262_144)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.close()
                break
            size += len(data)
            self.output += data
            self._answer(data)
        return size

    def _answer(self, data: bytes) -> None:
        """Send what the protocols ask for."""
        if not self.is_h2:
            (first, *_) = self.members
            if self.case.participants[first].kind == WEBSOCKET:
                answer = self.frames[first].feed(data, with_head=True)
                self.outbox += [answer] if answer else []
            return
        self._h2_input += data
        while len(self._h2_input) >= 9:
            length = int.from_bytes(self._h2_input[:3], "big")
            if len(self._h2_input) < 9 + length:
                break
            kind, flags = self._h2_input[3:5]
            stream = int.from_bytes(self._h2_input[5:9], "big")
            payload, self._h2_input = self._h2_input[9 : 9 + length], self._h2_input[9 + length :]
            if kind == _SETTINGS and not flags:
                self.outbox.append(h2_frame(_SETTINGS, 1, 0, b""))
            elif kind == _DATA:
                member = self.members[(stream - 1) // 2]
                if self.case.participants[member].kind == WEBSOCKET:
                    answer = self.frames[member].feed(payload, with_head=False)
                    if answer and member not in self.ended:
                        self.ended.add(member)
                        self.outbox.append(h2_frame(_DATA, 1, stream, answer))

    def close(self) -> None:
        """Close, whatever has not been read."""
        self.closed = True
        self.outbox = []
        self.sock.close()

    def answers(self) -> list[tuple[int, str]]:
        """What the applications have sent: the number of the participant, and what it says."""
        return [(int(number), said.decode()) for number, said in _ANSWER.findall(self.output)]


class Clients:
    """All of them, turn by turn."""

    def __init__(self, case: Case, application: Application, address: Any, *, h2: bool, h3: bool, tls: bool) -> None:
        self.case = case
        self.application = application
        self.connections: list[Connection] = []
        self.of: dict[int, Connection] = {}
        for number, protocol in enumerate(case.connections):
            members = [member for member, one in enumerate(case.participants) if one.connection == number]
            # Where there is no HTTP/2, each of its streams is a connection of its own.
            groups = [members] if h2 or protocol == "http/1" else [[member] for member in members]
            if protocol == "http/3" and not h3:
                protocol = "http/2"
            for group in filter(None, groups):
                connection = Connection(case, group, protocol if h2 else "http/1", address, tls=tls)
                connection.is_cut = number in case.cut
                self.connections.append(connection)
                self.of |= dict.fromkeys(group, connection)
        self.opened: set[int] = set()
        self.gone: set[int] = set()
        self.turn = self.batch = 0
        self.next_turn = 0

    def step(self) -> int:
        """Do what clients do in one turn of the loop; how much has moved."""
        moved = sum(connection.read() for connection in self.connections)
        moved += self.open()
        moved += self.fulfil()
        if self.turn >= self.next_turn:
            moved += self.send_some()
        self.turn += 1
        # One write for each connection, all of them in this turn.
        return moved + sum(connection.flush() for connection in self.connections)

    def open(self) -> int:
        """Begin sessions and requests: behind each other where they are pipelined."""
        moved = 0
        for connection in self.connections:
            for member in connection.members:
                if member not in self.opened:
                    self.opened.add(member)
                    connection.outbox.append(connection.open(member))
                    moved += 1
                if not connection.is_h2 and connection.sent[member] < connection.total(member):
                    break
        return moved

    def fulfil(self) -> int:
        """Do what the application asks of clients."""
        wishes, self.application.wishes = self.application.wishes, []
        for member, how in wishes:
            connection = self.of[member]
            if how in ("pause", "resume"):
                connection.paused = how == "pause"
            elif how == "message":
                connection.outbox.append(connection.message(member, b"extra"))
            else:
                self.gone.add(member)
                connection.leave(member, how)
        return len(wishes)

    def send_some(self) -> int:
        """Send the next messages: some participants may have to wait."""
        case = self.case
        count = case.together[self.batch % len(case.together)]
        sent = 0
        order = [case.order[(self.batch + place) % len(case.order)] for place in range(count)]
        for number in (*order, *range(len(case.participants))):
            if sent >= count:
                break
            if number < len(case.participants) and self.may_send(number):
                self.send(number)
                sent += 1
        if sent:
            self.batch += 1
            self.next_turn = self.turn + case.gaps[self.batch % len(case.gaps)]
        return sent

    def may_send(self, number: int) -> bool:
        """Whether the next message of a participant can be sent, and nothing has to be waited for."""
        connection = self.of[number]
        places = self.case.scenes_of(number)
        sent = connection.sent[number]
        leaves = self.case.participants[number].leaves
        if number not in self.opened or number in self.gone or number in connection.ended:
            return False
        player = self.application.players.get(number)
        started = player is not None and player.started
        if leaves is not None and started and sent >= min(leaves[1], len(places)):
            return True
        if sent >= len(places) or not (started or self.case.participants[number].kind != WEBSOCKET):
            return False
        application = self.application
        for place in places[:sent]:
            scene = self.case.scenes[place]
            # This scene waits for a message of its own, and would take the next one instead.
            waits = scene.kind == "wait" and scene.members[0] == number and application.state(place).receives
            if waits and (number, place) not in application.notes:
                return False
        scene = self.case.scenes[places[sent]]
        holds = scene.data.get("actor_waits") == "hold" and len(scene.members) > 1 and scene.members[-1] == number
        return not holds or application.state(places[sent]).announcements.complete

    def send(self, number: int) -> None:
        """Send it."""
        connection = self.of[number]
        places = self.case.scenes_of(number)
        leaves = self.case.participants[number].leaves
        sent = connection.sent[number]
        player = self.application.players.get(number)
        if leaves is not None and player is not None and player.started and sent >= min(leaves[1], len(places)):
            self.gone.add(number)
            connection.leave(number, leaves[0])
            return
        connection.sent[number] += 1
        last = connection.sent[number] == len(places)
        connection.outbox.append(connection.message(number, b"%03d;" % places[sent], last))

    def close(self) -> None:
        """Close them all."""
        for connection in self.connections:
            connection.read()
            connection.close()
