"""`nemesis policy`: what may be done to jobs and nodes, in full, in sentences, and a new one."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemesis.cli.cell import CellOption, ContextOption, CredsOption, ServerOption, open_log
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.operate import (
    ByOption,
    ReasonOption,
    ago,
    document,
    open_as_operator,
    read_hands,
    signed,
    write,
)
from nemesis.cli.output import JsonOption, print_json, say
from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from nemesis.schemas.policy import Policy
    from nemesis.views.hands import Hands

policy = typer.Typer(no_args_is_help=True, help="What may be done to jobs and nodes.")
FileArgument = Annotated[Path, typer.Argument(help="A policy in JSON, or TOML by its suffix.")]


class BadPolicyError(NemesisError):
    """A file that is no policy, or breaks a rule of it."""

    exit_code = 2


class NotConfirmedError(NemesisError):
    """More would be done than before, and nobody said that it should."""

    exit_code = 4


@policy.command()
def show(
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Print the policy in force with every default and playbook, as `policy apply` takes it."""
    import msgspec

    from nemesis.views.policy_words import in_full

    hands = run_on_loop(_read(cell, server, context, credentials))
    full = in_full(hands.policy)
    if json:
        print_json(document(hands, policy=full, applied=hands.policy_said))
        return
    said = hands.policy_said
    since = f"{ago(hands.log_time_ns, said.at_ns)}, by {said.by}: {said.reason}"
    typer.echo(f"applied {since}" if said.by else "no policy was applied: the default", err=True)
    typer.echo(msgspec.json.format(msgspec.json.encode(full), indent=2).decode())


@policy.command()
def explain(
    file: Annotated[
        Path | None, typer.Argument(help="A policy that is not applied yet; with the difference.")
    ] = None,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Say in sentences what would happen for each fault, within which limits, in which mode."""
    from nemesis.views.policy_words import difference, explained

    meant = _load(file) if file else None
    hands = run_on_loop(_read(cell, server, context, credentials))
    lines = explained(meant or hands.policy)
    changes = difference(hands.policy, meant) if meant else []
    if json:
        tripped = list(hands.tripped.values())
        print_json(document(hands, says=lines, changes=changes, tripped=tripped))
        return
    for line in lines:
        say(line)
    for each in hands.tripped.values():
        say(f"{each.limit} has tripped, by {each.job}: `nemesis breaker reset {each.limit}`")
    if meant:
        say("Against the policy in force:" if changes else "The policy in force means the same.")
        for line in changes:
            say(f"  {line}")


@policy.command()
def apply(
    file: FileArgument,
    reason: ReasonOption = "",
    by: ByOption = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Also where more would be done than before.")
    ] = False,
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Put a policy in force, whole, after showing what changes (changes the cluster).

    Exit 2: it is none or breaks a rule; 4: more would be done than before, without --yes.
    """
    meant = _load(file)
    who = signed(by, reason)
    hands, changes = run_on_loop(
        _apply(meant, who, (cell, server, context, credentials), yes=yes, quiet=json)
    )
    if json:
        print_json(document(hands, applied=bool(changes), changes=changes))
    elif changes:
        say(f"in force now, by {who['by']}; `nemesis policy explain` says it in sentences")
    else:
        say("nothing changes: the policy in force means the same")


async def _apply(
    meant: "Policy",
    who: dict[str, str],
    where: tuple[str, str, str, Path | None],
    *,
    yes: bool,
    quiet: bool,
) -> tuple["Hands", list[str]]:
    import msgspec

    from nemesis.schemas.operated import PolicyApplied
    from nemesis.views.policy_words import difference, rising

    async with await open_as_operator(*where) as log:
        hands = await read_hands(log)
        before = hands.policy
        changes = difference(before, meant)
        for line in () if quiet else changes:
            say(line)
        if not changes:
            return hands, []
        if more := rising(before, meant):
            _confirm(", ".join(more), yes=yes)
        document = msgspec.Raw(msgspec.json.encode(meant))
        act = PolicyApplied(at_ns=0, policy=document, **who)
        await write(log, hands, act, "policy", once=False)
    return hands, changes


def _confirm(what: str, *, yes: bool) -> None:
    """Have a person say that more may be done than before.

    Raises:
        NotConfirmedError: nobody said so.
    """
    if yes:
        return
    if sys.stdin.isatty() and typer.confirm(f"More may be done than before: {what}. Apply it?"):
        return
    raise NotConfirmedError(
        f"more would be done than before: {what}", hint="nothing was changed; --yes applies it"
    )


async def _read(cell: str, server: str, context: str, credentials: Path | None) -> "Hands":
    async with await open_log(cell, server, context, credentials) as log:
        return await read_hands(log)


def _load(path: Path) -> "Policy":
    """The policy in a file.

    Raises:
        BadPolicyError: none, or it breaks a rule.
    """
    import msgspec

    from nemesis.schemas.errors import MalformedFactError
    from nemesis.schemas.policy import decode_policy
    from nemesis.streams.documents import BadDocumentError, read_document, read_toml

    hint = "`nemesis policy show` prints one to start from"
    try:
        if path.suffix == ".toml":
            return decode_policy(msgspec.json.encode(read_toml(path)))
        return decode_policy(read_document(path))
    except BadDocumentError as error:
        raise BadPolicyError(error.message, hint=hint) from error
    except (MalformedFactError, OverflowError) as error:
        raise BadPolicyError(f"{path}: {str(error).rstrip('.')}", hint=hint) from error
