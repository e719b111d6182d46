"""The conversation: a situation goes in, words and proposals come out, whatever the model does.

Each round is one answer of the model; the tools that it calls are answered in order, all of them,
and it is asked again. It ends when the model has explained itself, or at the first limit, and then
with a defined answer: a conversation that did not come to its end proposes nothing.
"""

import asyncio
import time
from importlib import resources
from typing import Any, Final

import msgspec

from nemesis.actors.advisor.answer import Answer, TooLongError
from nemesis.actors.advisor.asking import Model, UnavailableError
from nemesis.actors.advisor.budget import Meter, SpentError
from nemesis.actors.advisor.desk import Desk
from nemesis.actors.advisor.fence import fenced
from nemesis.actors.advisor.key import Key
from nemesis.actors.advisor.settings import Settings
from nemesis.actors.advisor.tools import Tools
from nemesis.schemas.advised import (
    CALLS_MAX,
    TEXT_CHARS_MAX,
    AdviceEnd,
    AdvisedAct,
    AdvisorCall,
)

QUESTION: Final = "Advise on this job.\n"
_ENDS: Final[dict[str, AdviceEnd]] = {
    "max_tokens": "too_long",
    "model_context_window_exceeded": "too_long",
    "refusal": "declined",
}
"""Reasons to stop that leave no whole answer."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one conversation."""

    text: str
    acts: tuple[AdvisedAct, ...]
    calls: tuple[AdvisorCall, ...]
    ended: AdviceEnd
    limit: str
    meter: Meter
    duration_ns: int


def prompt() -> str:
    """What the model is told to be; a file of the release."""
    return (resources.files("nemesis.actors.advisor") / "system.txt").read_text("utf-8")


def tool_schemas() -> list[Any]:
    """What the model is told of its tools; a file of the release."""
    found: list[Any] = msgspec.json.decode(
        (resources.files("nemesis.actors.advisor") / "tools.json").read_bytes()
    )
    return found


def model_of(settings: Settings, key: Key) -> Model:
    """The model of these settings, with the prompt and the tools of the release."""
    return Model(settings, key, system=prompt(), tools=tool_schemas())


async def advise(
    model: Model, settings: Settings, desk: Desk, *, day_cost_microusd: int = 0
) -> Advice:
    """Ask about the desk's job until the model has explained itself, or a limit is reached."""
    meter = Meter(settings.budget, settings.prices, day_cost_microusd=day_cost_microusd)
    tools = Tools(desk)
    began_ns = time.monotonic_ns()
    ended: AdviceEnd = "answered"
    text = limit = ""
    try:
        async with asyncio.timeout(settings.budget.seconds_max):
            text, ended = await _converse(model, meter, tools, desk)
    except TimeoutError:
        ended, limit = "spent", "seconds_max"
    except SpentError as error:
        ended, limit = "spent", error.limit
    except TooLongError as error:
        ended, limit = "too_long", error.message
    except UnavailableError as error:
        ended, limit = "unavailable", error.message
    acts = tuple(act for act in tools.acts if act.rule or ended == "answered")
    return Advice(
        text=(tools.words or text)[:TEXT_CHARS_MAX],
        acts=acts,
        calls=tuple(tools.calls[:CALLS_MAX]),
        ended=ended,
        limit=limit,
        meter=meter,
        duration_ns=time.monotonic_ns() - began_ns,
    )


async def _converse(model: Model, meter: Meter, tools: Tools, desk: Desk) -> tuple[str, AdviceEnd]:
    """(last words, how it ended)."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": QUESTION + fenced(desk.document())}
    ]
    while True:
        answer = await model.ask(messages, meter)
        if answer.stop in _ENDS:
            return answer.text, _ENDS[answer.stop]
        if not answer.calls and answer.stop != "pause_turn":
            return answer.text, "answered"
        messages.append({"role": "assistant", "content": answer.blocks})
        if answer.calls:
            messages.append({"role": "user", "content": _results(answer, meter, tools)})
        if tools.words:
            return answer.text, "answered"


def _results(answer: Answer, meter: Meter, tools: Tools) -> list[dict[str, Any]]:
    """An answer to each call: the API takes no conversation in which one is missing."""
    found: list[dict[str, Any]] = []
    for call in answer.calls:
        said = tools.answer(call)
        meter.call(malformed=said.malformed)
        found.append(
            {
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": said.text,
                "is_error": said.failed,
            }
        )
    return found
