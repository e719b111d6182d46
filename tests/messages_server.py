"""A server that speaks the Messages API on loopback, and says what a test wants it to say.

Answers are streams of server-sent events as platform.claude.com/docs describes them; text and a
tool's input come in pieces. A test hands in turns, one a request, in order; a turn may be a
function of the request, for a model that does what it reads.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import msgspec

PIECE: Final = 7
"""Characters of one delta."""


class Turn(msgspec.Struct, kw_only=True, frozen=True):
    """What is answered to one request."""

    text: str = ""
    thinking: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    """(tool, input); an input that is a string is sent as it stands, JSON or not."""
    stop: str = ""
    tokens_in: int = 1000
    tokens_out: int = 100
    status: int = 200
    error: str = ""
    """Its type; with status 200 an event in the middle of the stream."""
    headers: Mapping[str, str] = {}
    events_max: int | None = None
    """The connection is cut after so many events."""
    waits: bool = False
    """Nothing more comes after the first event, until the server closes."""


Script = Turn | Callable[[dict[str, Any]], Turn]


def calls(tool: str, **given: Any) -> Turn:
    """A turn that calls one tool."""
    return Turn(calls=[(tool, given)])


def explains(words: str = "Nothing is to be done.") -> Turn:
    """A turn that ends the work."""
    return calls("explain", words=words)


class MessagesServer:
    """The server, and the requests that it got."""

    def __init__(self, turns: Sequence[Script]) -> None:
        self.requests: Final[list[dict[str, Any]]] = []
        self.headers: Final[list[dict[str, str]]] = []
        self.url = ""
        self.closing: Final = threading.Event()
        self._turns: Final = iter(turns)
        self._lock: Final = threading.Lock()

    def turn(self, body: dict[str, Any], headers: dict[str, str]) -> Turn:
        """What is to be said to this request; no turn left: a mistake of the test."""
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            scripted = next(self._turns, Turn(status=400, error="no_turn_left"))
        return scripted(body) if callable(scripted) else scripted

    @property
    def results(self) -> list[dict[str, Any]]:
        """Results of tools in the last request, decoded."""
        told = self.requests[-1]["messages"][-1]["content"]
        return [json.loads(each["content"]) for each in told if each["type"] == "tool_result"]


@contextmanager
def messages_server(*turns: Script) -> Iterator[MessagesServer]:
    """A server at `url` until the end of the block."""
    said = MessagesServer(turns)

    class Handler(_Handler):
        server_said = said

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        said.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield said
        finally:
            said.closing.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_said: MessagesServer

    def do_POST(self) -> None:
        """One request."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.path == "/v1/messages", self.path
        assert body["stream"] is True
        assert body["max_tokens"] > 0
        turn = self.server_said.turn(
            body, {name.lower(): value for name, value in self.headers.items()}
        )
        if turn.status != 200:
            self._refuse(turn)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        for name, value in turn.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for at, event in enumerate(_events(turn)):
            if turn.events_max is not None and at >= turn.events_max:
                return
            written = event if isinstance(event, str) else json.dumps(event)
            kind = "broken" if isinstance(event, str) else event["type"]
            try:
                self.wfile.write(f"event: {kind}\ndata: {written}\n\n".encode())
            except OSError:
                return  # the client had enough
            if turn.waits:
                self.server_said.closing.wait()
                return

    def _refuse(self, turn: Turn) -> None:
        body = {"type": "error", "error": {"type": turn.error, "message": f"a {turn.error}"}}
        written = json.dumps(body).encode()
        self.send_response(turn.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(written)))
        self.send_header("connection", "close")
        for name, value in turn.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(written)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _events(turn: Turn) -> Iterator[dict[str, Any]]:
    usage: dict[str, Any] = {"input_tokens": turn.tokens_in, "output_tokens": 1}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "stand-in",
        "content": list[Any](),
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield {"type": "message_start", "message": message}
    yield {"type": "ping"}
    at = 0
    if turn.thinking:
        block: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
        yield from _block(at, block, "thinking_delta", "thinking", turn.thinking)
        signed = {"type": "signature_delta", "signature": "c2lnbmVk"}
        yield {"type": "content_block_delta", "index": at, "delta": signed}
        yield {"type": "content_block_stop", "index": at}
        at += 1
    if turn.text:
        yield from _block(at, {"type": "text", "text": ""}, "text_delta", "text", turn.text)
        yield {"type": "content_block_stop", "index": at}
        at += 1
    for number, (tool, given) in enumerate(turn.calls):
        written = given if isinstance(given, str) else json.dumps(given)
        call: dict[str, Any] = {
            "type": "tool_use",
            "id": f"toolu_{at}_{number}",
            "name": tool,
            "input": {},
        }
        yield from _block(at, call, "input_json_delta", "partial_json", written)
        yield {"type": "content_block_stop", "index": at}
        at += 1
    if turn.error:
        yield {"type": "error", "error": {"type": turn.error, "message": f"a {turn.error}"}}
        return
    stop = turn.stop or ("tool_use" if turn.calls else "end_turn")
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": turn.tokens_out},
    }
    yield {"type": "message_stop"}


def _block(
    index: int, block: dict[str, Any], delta: str, field: str, words: str
) -> Iterator[dict[str, Any]]:
    yield {"type": "content_block_start", "index": index, "content_block": block}
    for at in range(0, len(words), PIECE):
        piece = {"type": delta, field: words[at : at + PIECE]}
        yield {"type": "content_block_delta", "index": index, "delta": piece}
