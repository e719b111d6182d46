"""The permission table, every cell of it tried against a real server.

The table here is written by hand from the design, not taken from the code that it checks.
"""

import asyncio
import re
from contextlib import suppress
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg

from nemesis.actors.job import JobActor
from nemesis.schemas.errors import BadNameError
from nemesis.schemas.plans import Hello, Plans, decode_message, encode_message, hello_subject
from nemesis.schemas.registry import ANY_PROCESSOR, EVENTS, TELEMETRY
from nemesis.schemas.tokens import token_of
from nemesis.streams.connection import Connection, Login
from nemesis.streams.credentials import seed_path
from nemesis.streams.errors import LogUnavailableError, WrongCredentialsError
from nemesis.streams.permissions import inbox_of, permissions_of, standing_roles, user_of
from nemesis.streams.server import Server
from tests.cells import in_cell, until

ODD = "Rack 7/Node.1*"
ROLES = (
    *standing_roles(),
    "node/n001",
    "node/n002",
    f"node/{ODD}",
    "producer/n001",
    "collector/leaf01",
)
PROCESSORS = {role for role in ROLES if role.startswith("processor/")}
ACTORS = {role for role in ROLES if role.startswith("actor/")}
NODES = {role for role in ROLES if role.startswith("node/")}
SHOWING = {"dashboard", "exporter"}
READERS = {*PROCESSORS, *ACTORS, *SHOWING, "archivist", "operator", "reader", "keeper", "sink"}
PRODUCED = frozenset(
    (
        "sample",
        "device_state",
        "kernel",
        "inventory",
        "log",
        "counters",
        "collective_times",
        "setting",
        "coverage",
        "spool",
    )
)
LOUD = set(ROLES) - {"browser"}
NOBODY: set[str] = set()


def publishing_telemetry() -> dict[str, set[str]]:
    """Subject -> roles that may publish to it: what is seen."""
    table: dict[str, set[str]] = {}
    for token, kind in TELEMETRY.items():
        of_node = kind.owners == ("node",)
        writers = {"node/n001", "sim", *(["producer/n001"] if token in PRODUCED else [])}
        table[f"nemesis.telemetry.n001.{token}"] = writers if of_node else NOBODY
        table[f"nemesis.telemetry.{token_of(ODD)}.{token}"] = (
            {f"node/{ODD}", "sim"} if of_node else NOBODY
        )
        table[f"nemesis.telemetry.leaf01.{token}"] = {"sim"} if of_node else NOBODY
    for token in ("fabric", "fabric_inventory"):
        table[f"nemesis.telemetry.n001.{token}"] = {"sim"}
        table[f"nemesis.telemetry.{token_of(ODD)}.{token}"] = {"sim"}
        table[f"nemesis.telemetry.leaf01.{token}"] = {"collector/leaf01", "sim"}
    table["nemesis.telemetry.clock.tick"] = {"ticker"}
    return table


def publishing_events() -> dict[str, set[str]]:
    """What is concluded, decided and done."""
    table: dict[str, set[str]] = {}
    for token, kind in EVENTS.items():
        owners = {each.replace(":", "/", 1) for each in kind.owners} - {"processor/*"}
        table[f"nemesis.events.{token}.x"] = owners
        table[f"nemesis.events.{token}.healer"] = (
            {"processor/healer"} if ANY_PROCESSOR in kind.owners else owners
        )
    table["nemesis.events.processor_diverged.x"] = PROCESSORS
    table["nemesis.events.processor_diverged.healer"] = PROCESSORS
    return table


def publishing_positions() -> dict[str, set[str]]:
    """Where processors stand, and their states."""
    table: dict[str, set[str]] = {}
    for processor in ("healer", "attribution"):
        table[f"nemesis.cursor.{processor}"] = {f"processor/{processor}"}
        table[f"nemesis.cursor.{processor}.snapshot"] = {f"processor/{processor}"}
        table[f"$O.NEMESIS_STATE.C.processor-{processor}.abc"] = {f"processor/{processor}"}
    return table


READING = (
    "$JS.API.CONSUMER.CREATE.NEMESIS.some",
    "$JS.API.CONSUMER.CREATE.NEMESIS.some.nemesis.events.>",
    "$JS.API.CONSUMER.MSG.NEXT.NEMESIS.some",
    "$JS.API.DIRECT.GET.NEMESIS",
    "$JS.API.DIRECT.GET.NEMESIS.nemesis.events.fault_attributed.x",
)
FORBIDDEN = (
    "nemesis.events",
    "nemesis.events.new_kind.x",
    "nemesis.telemetry.n001.new_kind",
    "nemesis.other",
    "anything",
    "_INBOX_processor.healer.abc.1",
    "_INBOX_reader.abc.1",
    "$JS.API.STREAM.DELETE.NEMESIS",
    "$JS.API.STREAM.PURGE.NEMESIS",
    "$JS.API.STREAM.MSG.DELETE.NEMESIS",
    "$JS.API.STREAM.MSG.GET.NEMESIS",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.NAMES",
    "$JS.API.CONSUMER.LIST.NEMESIS",
    "$JS.API.CONSUMER.NAMES.NEMESIS",
    "$JS.API.CONSUMER.DELETE.NEMESIS.some",
    "$JS.API.CONSUMER.DURABLE.CREATE.NEMESIS.some",
    "$SYS.REQ.SERVER.PING",
)
PUBLISHING: dict[str, set[str]] = {
    **publishing_telemetry(),
    **publishing_events(),
    **publishing_positions(),
    **dict.fromkeys(READING, READERS),
    **dict.fromkeys(FORBIDDEN, NOBODY),
    "nemesis.plan.n001": {"actor/job"},
    "nemesis.plan.n001.polls": {"actor/job"},
    "_INBOX_node.n002.abc.1": {"actor/job"},
    "nemesis.report.n001.ranks": {"node/n001", "sim"},
    "nemesis.truth.fault": {"sim"},
    "$O.NEMESIS_BLOBS.C.node-n001.abc": {"node/n001", "sim"},
    "$O.NEMESIS_BLOBS.M.abc": {*NODES, "sim"},
    "$O.NEMESIS_STATE.M.abc": PROCESSORS,
    "$O.NEMESIS_INCIDENTS.C.archivist.abc": {"archivist"},
    "$O.NEMESIS_INCIDENTS.M.abc": {"archivist"},
    "$JS.API.STREAM.INFO.NEMESIS": {*READERS, "admin"},
    "$JS.API.STREAM.CREATE.NEMESIS": {"admin"},
    "$JS.API.STREAM.UPDATE.NEMESIS": {"admin"},
    "$JS.API.STREAM.INFO.NEMESIS_TRUTH": {"sim", "admin"},
    "$JS.API.DIRECT.GET.NEMESIS_TRUTH": {"sim"},
    "$JS.API.CONSUMER.CREATE.NEMESIS_TRUTH.some": {"sim"},
    "$JS.API.DIRECT.GET.NEMESIS.nemesis.events.log_measured.log": {
        *READERS,
        *NODES,
        "producer/n001",
        "collector/leaf01",
        "sim",
    },
    "$JS.API.DIRECT.GET.NEMESIS.nemesis.telemetry.n001.coverage": {*READERS, "producer/n001"},
    "$JS.API.DIRECT.GET.NEMESIS.nemesis.telemetry.n002.coverage": READERS,
    "$JS.API.DIRECT.GET.OBJ_NEMESIS_BLOBS": {*PROCESSORS, "archivist", "reader"},
    "$JS.API.DIRECT.GET.OBJ_NEMESIS_STATE": {*PROCESSORS, "actor/advisor", "archivist", "reader"},
    "$JS.API.DIRECT.GET.OBJ_NEMESIS_INCIDENTS": {"archivist", "reader"},
}
SUBSCRIBING: dict[str, set[str]] = {
    "nemesis.events": {"browser"},
    "nemesis.events.>": NOBODY,
    "nemesis.events.*.*": NOBODY,
    "nemesis.telemetry.>": NOBODY,
    "nemesis.telemetry.n001.sample": NOBODY,
    "nemesis.cursor.healer": NOBODY,
    "nemesis.truth.>": NOBODY,
    "nemesis.plan.n001": {"node/n001", "sim"},
    "nemesis.plan.*": {"sim"},
    "nemesis.plan.n001.polls": {"producer/n001"},
    "nemesis.plan.n002.polls": NOBODY,
    "nemesis.plan.*.polls": NOBODY,
    "nemesis.report.*.ranks": {"actor/job"},
    "nemesis.report.n001.hello": {"actor/job"},
    ">": NOBODY,
    "$JS.API.>": NOBODY,
    "$SYS.>": NOBODY,
    **{f"{inbox_of(user_of(role))}.abc.*": {role} & LOUD for role in ROLES},
    "_INBOX.>": NOBODY,
}

LAST = "the.last"
_REFUSED = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')


async def refused(server: Server, role: str) -> tuple[set[str], set[str]]:
    """What the server refuses this role of everything in the tables, as it spells it."""
    seen: dict[str, set[str]] = {"publish": set(), "subscription": set()}

    async def on_error(error: Exception) -> None:
        if match := _REFUSED.search(str(error)):
            seen[match[1]].add(match[2])

    async def ignore(msg: Msg) -> None:
        return

    client = await nats.connect(
        server.url,
        nkeys_seed=str(seed_path(server.credentials_folder, role)),
        error_cb=on_error,
        inbox_prefix=inbox_of(user_of(role)),
    )
    # what nobody may do comes last: its refusal says that everything before was judged
    for subject in (*PUBLISHING, LAST):
        await client.publish(subject, b"")
    for subject in (*SUBSCRIBING, LAST):
        await client.subscribe(subject, cb=ignore)
    await until(lambda: all(LAST in each for each in seen.values()), "all is judged")
    await client.close()
    return seen["publish"] - {LAST}, seen["subscription"] - {LAST}


def expected(table: dict[str, set[str]], role: str) -> set[str]:
    return {subject.lower() for subject, roles in table.items() if role not in roles}


@pytest.mark.server
def test_nobody_may_do_more_or_less_than_the_table_says(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        for role in ROLES:
            publish, subscribe = await refused(server, role)
            assert publish == expected(PUBLISHING, role), role
            assert subscribe == expected(SUBSCRIBING, role), role

    in_cell(tmp_path, body, roles=ROLES)


OWNERS = {
    "actor:advisor": "advice_given",
    "actor:job": "attempt_completed attempt_failed attempt_outcome_unknown attempt_started"
    " membership_reported",
    "archivist": "incident_archived",
    "keeper": "log_measured",
    "sink": "delivery_failed",
    "operator": "breaker_reset decision_approved decision_vetoed job_ended job_submitted"
    " node_protected note_added pause_set policy_applied processor_activated",
    "processor:attribution": "fault_attributed",
    "processor:ecc_model": "failure_predicted model_drift_measured",
    "processor:ecc_rules": "failure_predicted",
    "processor:goodput": "goodput_accounted incident_costed job_resumed",
    "processor:healer": "policy_refused quiesce_decided recovery_decided recovery_withheld",
    "processor:incident": "incident_closed incident_grouped incident_opened",
    "processor:intake": "input_rejected inputs_suppressed",
    "processor:scheduler": "advice_judged job_placed job_queued job_rejected job_released"
    " moves_advised placement_requested",
    "actor:solver": "placement_proposed",
    ANY_PROCESSOR: "conclusion_undeliverable fact_skipped input_lost log_shortened"
    " processor_diverged processor_started",
}


def test_every_fact_has_the_owner_that_the_design_gives_it() -> None:
    said = {(token, owner) for owner, tokens in OWNERS.items() for token in tokens.split()}
    assert {(token, each) for token, kind in EVENTS.items() for each in kind.owners} == said


def test_the_table_covers_every_fact_and_every_role() -> None:
    for token in TELEMETRY:
        assert f"nemesis.telemetry.n001.{token}" in PUBLISHING
    for token, kind in EVENTS.items():
        allowed = PUBLISHING[f"nemesis.events.{token}.healer"]
        assert allowed, (token, kind.owner)
        assert allowed <= set(ROLES), (token, kind.owner)


@pytest.mark.server
def test_without_a_credential_nobody_comes_in(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        with pytest.raises(WrongCredentialsError):
            await Connection.open(server.url, Login("nobody"), name="nobody")
        login = Login("nobody", username="admin", password="admin")
        with pytest.raises(WrongCredentialsError):
            await Connection.open(server.url, login, name="nobody")

    in_cell(tmp_path, body)


@pytest.mark.server
def test_a_record_cannot_pass_for_a_plan(tmp_path: Path) -> None:
    """Who may create a consumer may name any subject outside the streams for delivery."""

    async def body(server: Server) -> None:
        node = await server.connect("node/n001")
        actor = await server.connect("actor/job")
        operator = await server.connect("operator")
        reader = await server.connect("reader")
        heard: list[bytes] = []

        async def hear(msg: Msg) -> None:
            heard.append(msg.data)

        delivered: list[bytes] = []

        async def overhear(msg: Msg) -> None:
            delivered.append(msg.data)

        await node.connection.subscribe("nemesis.plan.n001", hear)
        await node.connection.receive("nemesis.plan.n001", overhear)
        await node.connection.flush()
        await operator.publish("nemesis.events.note_added.x", b"forged")
        await reader.connection.request(
            "$JS.API.CONSUMER.CREATE.NEMESIS.forger",
            b'{"stream_name":"NEMESIS","action":"create","config":{"name":"forger",'
            b'"deliver_subject":"nemesis.plan.n001","ack_policy":"none","deliver_policy":"all",'
            b'"idle_heartbeat":100000000}}',
        )
        await until(lambda: b"forged" in delivered, "the server delivers it")
        await actor.connection.publish("nemesis.plan.n001", b"real")
        await until(lambda: b"real" in heard, "the plan arrives")
        assert heard == [b"real"]
        for log in (node, actor, operator, reader):
            await log.close()

    in_cell(tmp_path, body)


@pytest.mark.server
def test_an_agent_may_answer_a_plan_and_an_actor_a_hello(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        node, actor = await server.connect("node/n001"), await server.connect("actor/job")

        async def agree(msg: Msg) -> None:
            await node.connection.publish(msg.reply, b"done")

        async def greet(msg: Msg) -> None:
            await actor.connection.publish(msg.reply, b"plans")

        await node.connection.subscribe("nemesis.plan.n001", agree)
        await actor.connection.subscribe("nemesis.report.*.hello", greet)
        await asyncio.gather(node.connection.flush(), actor.connection.flush())
        answer = await actor.connection.request("nemesis.plan.n001", b"hold")
        assert answer.data == b"done"
        assert (await node.connection.request("nemesis.report.n001.hello")).data == b"plans"
        await node.close()
        await actor.close()

    in_cell(tmp_path, body)


@pytest.mark.server
def test_an_actor_answers_nowhere_but_in_a_nodes_inbox(tmp_path: Path) -> None:
    """A node that asks says where the answer is to go; the actor must not write there for it."""

    async def body(server: Server) -> None:
        node, log = await server.connect("node/n001"), await server.connect("actor/job")
        running = asyncio.create_task(JobActor(log, "a").run())
        hello = encode_message(Hello(node="n001", boot_id="boot", start_ns=1))
        subject = hello_subject("n001")

        async def greeted() -> bool:
            with suppress(LogUnavailableError):
                answer = await node.connection.request(subject, hello, timeout_s=0.5)
                return decode_message(Plans, answer.data) == Plans()
            return False

        await until(greeted, "the actor knows the log")
        before = (await log.bounds()).last_seq
        places = ("nemesis.cursor.healer", "nemesis.events.job_ended.llama", "_INBOX_reader.x")
        for place in places:
            await node.connection.publish(subject, hello, reply=place)
        await until(lambda: log.connection.refused_count >= 3, "all three are refused")
        await until(greeted, "the actor goes on")
        assert (await log.bounds()).last_seq == before
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await node.close()
        await log.close()

    in_cell(tmp_path, body)


@pytest.mark.parametrize("role", ["", "node", "node/", "root", "ticker/x", "admin/x", "processor"])
def test_there_are_no_other_roles(role: str) -> None:
    with pytest.raises(BadNameError, match="no such role"):
        permissions_of(role)


@pytest.mark.parametrize("role", ["node/clock", "producer/clock", "collector/clock"])
def test_no_node_may_be_called_clock(role: str) -> None:
    with pytest.raises(BadNameError, match="tick"):
        permissions_of(role)


def test_different_roles_have_different_users() -> None:
    roles = [*ROLES, "node/healer", "collector/n001", "actor/healer", "node/processor-healer"]
    assert len({user_of(role) for role in roles}) == len(roles)
