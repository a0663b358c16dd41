"""A client on a raw socket: it sees what libraries hide (RST or FIN, when each byte came)."""

import contextlib
import json
import socket
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

CHARGE = {
    "amount": "1999",
    "currency": "eur",
    "payment_method": "pm_card_visa",
    "confirm": "true",
    "metadata[order_reference]": "R1",
}


@dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self) -> Any:
        return json.loads(self.body)


class Raw:
    """One connection. `get`/`post` return an Answer; the raw parts are `send` and `receive`."""

    def __init__(self, url: str, timeout: float = 5.0) -> None:
        address = urlsplit(url)
        self.sock = socket.create_connection((address.hostname, address.port), timeout=timeout)
        self._buffer = b""

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def receive(self) -> Answer:
        """Raises EOFError on FIN before the end, ConnectionResetError on RST, TimeoutError on silence."""
        head = self._until(b"\r\n\r\n").decode()
        status, *lines = head.split("\r\n")[:-2]
        headers = [(line.partition(": ")[0], line.partition(": ")[2]) for line in lines]
        answer = Answer(int(status.split()[1]), headers, b"")
        length = int(answer.header("Content-Length") or 0)
        while len(self._buffer) < length:
            self._more()
        answer.body, self._buffer = self._buffer[:length], self._buffer[length:]
        return answer

    def get(self, target: str, **headers: str) -> Answer:
        self.send("GET", target, b"", {"Authorization": "Bearer sk_test_x", **_dashed(headers)})
        return self.receive()

    def post(self, target: str, form: dict[str, str], key: str | None = None, **headers: str) -> Answer:
        self.post_only(target, form, key, **headers)
        return self.receive()

    def post_only(self, target: str, form: dict[str, str], key: str | None = None, **headers: str) -> None:
        sent = {"Authorization": "Bearer sk_test_x", **_dashed(headers)}
        if key:
            sent["Idempotency-Key"] = key
        self.send("POST", target, urlencode(form).encode(), sent)

    def times_until_end(self) -> list[float]:
        """When each piece arrived, in seconds from now, until the other side closes."""
        begun = time.monotonic()
        times = []
        with contextlib.suppress(EOFError):
            while True:
                self._more()
                times.append(time.monotonic() - begun)
        return times

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._more()
        found, _, self._buffer = self._buffer.partition(mark)
        return found + mark

    def _more(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        self._buffer += data


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
