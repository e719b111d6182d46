"""One answer of the model, put together from the events of its stream, and checked strictly.

The client's own gathering reads a tool's input as far as it goes, so `{"job": "a` would become an
act on job `a`. Here what is not whole is not a call.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from anthropic.types import RawMessageStreamEvent

INPUT_BYTES_MAX: Final = 16_384
"""Of one tool call: far above a list of a thousand nodes in ranges."""
_THINKING: Final = ("thinking", "redacted_thinking")


class CutError(NemesisError):
    """The stream ended before the answer did, or makes no sense."""


class TooLongError(NemesisError):
    """The answer is longer than it may be."""


class Call(msgspec.Struct, frozen=True):
    """A call of a tool as the model wrote it."""

    id: str
    tool: str
    input: dict[str, Any] | None
    """None: not a whole JSON object."""


class Answer(msgspec.Struct, frozen=True):
    """One whole answer."""

    blocks: list[dict[str, Any]]
    """As they are to be sent back, thinking and all."""
    text: str
    calls: tuple[Call, ...]
    stop: str
    """end_turn, tool_use, max_tokens, refusal, ..."""


class Usage(msgspec.Struct):
    """Tokens of one answer, as far as it was told; it may be less than what was taken."""

    tokens_in: int = 0
    tokens_out: int = 0
    cache_write: int = 0
    cache_read: int = 0


class Gathering:
    """The answer so far."""

    def __init__(self, chars_max: int) -> None:
        self.usage: Final = Usage()
        self.chars = 0
        """Received, of whatever kind: what a cut answer cost is reckoned from it."""
        self._chars_max: Final = chars_max
        self._blocks: Final[list[dict[str, Any]]] = []
        self._parts: Final[list[list[str]]] = []
        self._stop = ""
        self._whole = False

    def take(self, event: "RawMessageStreamEvent") -> None:
        """The next event.

        Raises:
            CutError: it does not follow on what came before.
            TooLongError: more characters than an answer may have.
        """
        try:
            self._take(event)
        except (AttributeError, TypeError) as error:  # the client builds events unchecked
            raise CutError(f"an event that is none: {error}") from error

    def _take(self, event: "RawMessageStreamEvent") -> None:
        match event.type:
            case "message_start":
                self._count(event.message.usage)
            case "content_block_start":
                if event.index != len(self._blocks):
                    raise CutError(f"block {event.index} after {len(self._blocks)} blocks")
                self._blocks.append(event.content_block.to_dict())
                self._parts.append([])
            case "content_block_delta":
                self._add(event.index, event.delta.to_dict())
            case "message_delta":
                self._count(event.usage)
                self._stop = event.delta.stop_reason or ""
            case "message_stop":
                self._whole = True
            case _:
                pass

    def _count(self, told: Any) -> None:
        """Counts are totals so far; what a later event leaves out stays."""
        usage = self.usage
        usage.tokens_in = told.input_tokens or usage.tokens_in
        usage.tokens_out = told.output_tokens or usage.tokens_out
        usage.cache_write = told.cache_creation_input_tokens or usage.cache_write
        usage.cache_read = told.cache_read_input_tokens or usage.cache_read

    def _add(self, index: int, delta: dict[str, Any]) -> None:
        if not 0 <= index < len(self._blocks):
            raise CutError(f"more of block {index}, of {len(self._blocks)} blocks")
        for name in ("text", "thinking", "partial_json", "signature"):
            words = delta.get(name)
            if isinstance(words, str):
                self.chars += len(words)
                if name == "signature":
                    self._blocks[index]["signature"] = words
                else:
                    self._parts[index].append(words)
        if self.chars > self._chars_max:
            raise TooLongError(f"an answer of more than {self._chars_max} characters")

    def answer(self) -> Answer:
        """All of it.

        Raises:
            CutError: the stream ended before.
        """
        if not self._whole or not self._stop:
            raise CutError("the stream ended before the answer did")
        blocks: list[dict[str, Any]] = []
        calls: list[Call] = []
        texts: list[str] = []
        for block, parts in zip(self._blocks, self._parts, strict=True):
            said = "".join(parts)
            kind = block.get("type")
            if kind == "text":
                texts.append(block.get("text", "") + said)
                blocks.append({"type": "text", "text": texts[-1]})
            elif kind == "tool_use":
                call = _call(block, said)
                calls.append(call)
                sent = {"type": "tool_use", "id": call.id, "name": call.tool}
                blocks.append({**sent, "input": call.input or {}})
            elif kind in _THINKING:
                said = block.get("thinking", "") + said
                blocks.append({**block, "thinking": said} if kind == "thinking" else block)
        # an empty text block is refused when it is sent back
        blocks = [each for each in blocks if each.get("text") != ""]
        return Answer(blocks, "\n".join(filter(None, texts)), tuple(calls), self._stop)


def _call(block: dict[str, Any], said: str) -> Call:
    told: Any = block.get("input")
    if said:
        try:
            told = msgspec.json.decode(said) if len(said) <= INPUT_BYTES_MAX else None
        except (msgspec.DecodeError, RecursionError):
            told = None
    good = isinstance(told, dict)
    return Call(str(block.get("id", "")), str(block.get("name", "")), told if good else None)
