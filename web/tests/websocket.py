# web/tests/websocket.py: a websocket to a server on this machine, for what a test needs: whole texts, until a time.
import base64
import os
import select
import socket
import struct
import time


class Websocket:
    """A connection to ws://127.0.0.1:PORT/PATH."""

    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.rest, self.pieces = b"", b""
        key = base64.b64encode(os.urandom(16)).decode()
        asked = (f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "")
        self.socket.sendall("\r\n".join(asked).encode())
        until = time.monotonic() + 60
        while b"\r\n\r\n" not in self.rest:
            if not self.more(until):
                raise RuntimeError("the websocket was not opened in 60 s")
        answer, self.rest = self.rest.split(b"\r\n\r\n", 1)
        if b" 101 " not in answer.split(b"\r\n")[0]:
            raise RuntimeError(f"the websocket was refused: {answer.decode(errors='replace')}")

    def more(self, until):
        """Takes in what has come, or waits for it until a time."""
        if not select.select([self.socket], [], [], max(0, until - time.monotonic()))[0]:
            return False
        piece = self.socket.recv(1 << 20)
        if not piece:
            raise RuntimeError("the browser ended")
        self.rest += piece
        return True

    def send(self, data, kind=1):
        """Sends one frame: a text, or another kind. What a client sends must be masked."""
        data = data.encode() if isinstance(data, str) else data
        size = len(data)
        length = (bytes([128 | size]) if size < 126 else struct.pack(">BH", 128 | 126, size) if size < 1 << 16
                  else struct.pack(">BQ", 128 | 127, size))
        mask = os.urandom(4)
        masked = int.from_bytes(data, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        self.socket.sendall(bytes([128 | kind]) + length + mask + masked.to_bytes(size, "big"))

    def frame(self):
        """The next whole frame that has come: its first byte and its bytes; or None."""
        if len(self.rest) < 2:
            return None
        size, at = self.rest[1] & 127, 2
        if size >= 126:
            at = 4 if size == 126 else 10
            if len(self.rest) < at:
                return None
            size = int.from_bytes(self.rest[2:at], "big")
        if len(self.rest) < at + size:
            return None
        first, data, self.rest = self.rest[0], self.rest[at:at + size], self.rest[at + size:]
        return first, data

    def receive(self, until):
        """The next text, waited for until a time; or None."""
        while True:
            found = self.frame()
            if found is None:
                if not self.more(until):
                    return None
                continue
            first, data = found
            kind = first & 15
            if kind == 9:
                self.send(data, 10)  # a ping is answered
            elif kind == 8:
                raise RuntimeError("the browser closed the websocket")
            elif kind in (0, 1):
                self.pieces += data
                if first & 128:
                    text, self.pieces = self.pieces, b""
                    return text.decode()

    def close(self):
        self.socket.close()
