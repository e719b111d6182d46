"""Promises of the advisor's conversation: whatever the model does, the answer is a defined one."""

import json
import re
from pathlib import Path

import pytest

from nemesis.actors.advisor.advice import prompt, tool_schemas
from nemesis.actors.advisor.settings import BadAdvisorSettingsError, settings_of
from nemesis.actors.advisor.tools import TOOL_NAMES
from tests.advising import FOLLOWING, SECRET, advice_of
from tests.messages_server import Turn, calls, explains
from tests.scheduler_cell import Cell

NOW = Cell((4, 4), settings=FOLLOWING)
NOW.submit("llama", "TP8_NVL18+DP2")
NODES = ["n001", "n002"]


def test_the_settings_file_of_the_page_says_what_differs(tmp_path: Path) -> None:
    page = Path(__file__).parent.parent / "docs" / "advisor.md"
    (block,) = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    own = tmp_path / "advisor.toml"
    own.write_text(block)
    told, shipped = settings_of(own), settings_of()
    assert (told.budget.cost_microusd_max, told.retries.tries_max) == (200_000, 2)
    assert told.key_file == "/etc/nemesis/advisor.key"
    assert (told.prices, told.budget.calls_max) == (shipped.prices, shipped.budget.calls_max)
    own.write_text(block.replace("tries_max", "tries"))
    with pytest.raises(BadAdvisorSettingsError, match="tries"):
        settings_of(own)


def test_tools_are_asked_in_turn_and_the_words_come_back() -> None:
    advice, server = advice_of(
        NOW,
        Turn(thinking="Where would it go?", calls=[("propose_placement", {"job": "llama"})]),
        calls("schedule", job="llama", nodes=NODES, why="They share a leaf."),
        explains("It goes to n001 and n002."),
    )
    assert advice.ended == "answered"
    assert advice.text == "It goes to n001 and n002."
    (act,) = advice.acts
    assert (act.kind, act.nodes, act.rule) == ("place", ("n001", "n002"), "")
    assert [call.outcome for call in advice.calls] == ["done", "done", "done"]
    # what the model thought goes back to it as it was, or the API refuses the conversation
    thought = server.requests[1]["messages"][1]["content"][0]
    assert thought == {
        "type": "thinking",
        "thinking": "Where would it go?",
        "signature": "c2lnbmVk",
    }


def test_tokens_and_cost_are_counted_by_the_prices_of_the_settings() -> None:
    advice, _ = advice_of(
        NOW,
        Turn(calls=[("validate", {"spec": "TP8+DP2"})], tokens_in=3000, tokens_out=50),
        Turn(calls=[("explain", {"words": "So."})], tokens_in=4000, tokens_out=150),
    )
    meter = advice.meter
    assert (meter.requests, meter.tokens_in, meter.tokens_out) == (2, 7000, 200)
    assert meter.cost_microusd == 7000 * 2 + 200 * 10


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        (Turn(status=429, error="rate_limit_error", headers={"retry-after": "0.01"}), "429"),
        (Turn(status=529, error="overloaded_error"), "overload"),
        (Turn(status=500, error="api_error"), "500"),
        (Turn(text="Half of it", error="overloaded_error"), "in the middle"),
        (Turn(text="Half of it", events_max=4), "cut"),
        (Turn(events_max=0), "cut before it began"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_may_go_well_the_next_time_is_tried_again(turn: Turn, why: str) -> None:
    advice, server = advice_of(NOW, turn, explains("Now it did."))
    assert advice.ended == "answered"
    assert advice.text == "Now it did."
    assert len(server.requests) == 2 == advice.meter.requests


def test_a_server_that_stays_broken_is_given_up_and_nothing_is_proposed() -> None:
    act = calls("schedule", job="llama", nodes=NODES, why="So.")
    advice, server = advice_of(NOW, act, *[Turn(status=529, error="overloaded_error")] * 3)
    assert (advice.ended, advice.acts) == ("unavailable", ())
    assert advice.limit == "overloaded_error: a overloaded_error"
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    "turn",
    [
        Turn(status=401, error="authentication_error"),
        Turn(status=400, error="invalid_request_error"),
        Turn(status=429, error="rate_limit_error"),  # a limit on spending says no time
        Turn(status=429, error="rate_limit_error", headers={"retry-after": "3600"}),
    ],
    ids=["key", "request", "spending", "an hour"],
)
def test_what_will_not_go_well_is_not_tried_again(turn: Turn) -> None:
    advice, server = advice_of(NOW, turn, explains())
    assert advice.ended == "unavailable"
    assert advice.limit.startswith(turn.error)
    assert len(server.requests) == 1


def test_a_cut_answer_is_paid_for_and_none_of_its_calls_is_made() -> None:
    whole = Turn(calls=[("schedule", {"job": "llama", "nodes": NODES, "why": "So." * 40})])
    cut = Turn(calls=whole.calls, events_max=15, tokens_in=5000)
    advice, _ = advice_of(NOW, cut, Turn(text="I leave it.", tokens_in=1000, tokens_out=10))
    assert advice.acts == ()
    assert advice.meter.tokens_in == 6000
    assert advice.meter.tokens_out > 10


@pytest.mark.parametrize(
    "given",
    [
        '{"job": "llama", "nodes": ["n001", "n002"], "why": "a',
        "[]",
        '{"job": "llama", "nodes": "n001", "why": "a"}',
        '{"job": "llama", "nodes": ["n001"], "why": "a", "force": true}',
        '{"job": "llama"}',
        "{" * 3000,
    ],
    ids=["half", "list", "type", "unknown field", "missing field", "deep"],
)
def test_a_call_that_makes_no_sense_is_no_act(given: str) -> None:
    advice, server = advice_of(NOW, Turn(calls=[("schedule", given)]), explains())
    assert advice.acts == ()
    assert [call.outcome for call in advice.calls] == ["malformed", "done"]
    told = server.requests[1]["messages"][-1]["content"][0]
    assert told["is_error"]
    assert json.loads(told["content"])["error"] == "malformed_call"


def test_a_tool_that_does_not_exist_is_answered_with_those_that_do() -> None:
    advice, server = advice_of(NOW, calls("kubectl", command="delete node n001"), explains())
    assert (advice.calls[0].tool, advice.calls[0].outcome) == ("kubectl", "unknown_tool")
    assert server.results == [{"error": "unknown_tool", "tools": sorted(TOOL_NAMES)}]


def test_every_call_of_an_answer_gets_a_result() -> None:
    both = Turn(calls=[("validate", {"spec": "TP8+DP2"}), ("nothing", {})])
    _, server = advice_of(NOW, both, explains())
    asked = server.requests[1]["messages"][1]["content"]
    told = server.requests[1]["messages"][2]["content"]
    assert [each["id"] for each in asked] == [each["tool_use_id"] for each in told]


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        ({"requests_max": 2}, "requests_max"),
        ({"calls_max": 2}, "calls_max"),
        ({"tokens_in_max": 9000}, "tokens_in_max"),
        ({"tokens_out_max": 400}, "tokens_out_max"),
        ({"cost_microusd_max": 20_000}, "cost_microusd_max"),
    ],
)
def test_a_spent_budget_ends_it_and_nothing_that_was_proposed_counts(
    budget: dict[str, int], limit: str
) -> None:
    act = calls("schedule", job="llama", nodes=NODES, why="So.")
    more = [calls("validate", spec="TP8+DP2")] * 8
    advice, server = advice_of(NOW, act, *more, budget=budget)
    assert (advice.ended, advice.limit, advice.acts) == ("spent", limit, ())
    assert 1 <= len(server.requests) < 8
    counted = limit.removesuffix("_max")
    assert counted == "calls" or getattr(advice.meter, counted) <= budget[limit]


def test_a_day_that_is_spent_sends_no_request() -> None:
    advice, server = advice_of(NOW, explains(), day_cost_microusd=20_000_000)
    assert (advice.ended, advice.limit) == ("spent", "day_cost_microusd_max")
    assert server.requests == []


def test_calls_that_make_no_sense_end_it_after_a_few() -> None:
    advice, server = advice_of(NOW, *[calls("nothing")] * 9)
    assert (advice.ended, advice.limit) == ("spent", "malformed_calls_max")
    assert len(server.requests) == 4


def test_a_model_that_does_not_go_on_is_left_after_its_time() -> None:
    advice, _ = advice_of(NOW, Turn(waits=True), budget={"seconds_max": 0.3})
    assert (advice.ended, advice.limit) == ("spent", "seconds_max")


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded"])
def test_an_answer_that_ran_into_its_limit_makes_no_call(stop: str) -> None:
    cut = Turn(calls=[("schedule", {"job": "llama", "nodes": NODES, "why": "So."})], stop=stop)
    advice, _ = advice_of(NOW, cut, explains())
    assert (advice.ended, advice.acts, advice.calls) == ("too_long", (), ())


def test_an_answer_without_end_is_cut() -> None:
    advice, server = advice_of(NOW, Turn(text="la " * 5000), budget={"answer_chars_max": 3000})
    assert advice.ended == "too_long"
    assert len(server.requests) == 1
    assert advice.meter.tokens_out >= 1500


def test_a_model_that_declines_proposes_nothing() -> None:
    advice, _ = advice_of(NOW, Turn(text="I would rather not.", stop="refusal"))
    assert (advice.ended, advice.acts) == ("declined", ())
    assert advice.text == "I would rather not."


def test_words_without_the_tool_for_them_are_an_answer_too() -> None:
    advice, _ = advice_of(NOW, Turn(text="It has to wait for two nodes."))
    assert (advice.ended, advice.text) == ("answered", "It has to wait for two nodes.")


def test_the_key_goes_to_the_server_and_nowhere_else(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")

    def echo(_: object) -> Turn:
        return Turn(status=403, error=f"no entry for {SECRET}")

    advice, server = advice_of(NOW, echo)
    assert SECRET in server.headers[0]["authorization"]
    assert advice.ended == "unavailable"
    assert "Request options" in caplog.text  # of the client library, told to say all
    assert SECRET not in repr(advice) + "".join(capfd.readouterr()) + caplog.text
    assert "[key]" in advice.limit


def test_the_model_is_told_of_the_tools_that_there_are() -> None:
    assert [each["name"] for each in tool_schemas()] == list(TOOL_NAMES)
    assert "<data>" in prompt()
