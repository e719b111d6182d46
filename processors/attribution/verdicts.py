"""From the findings of one incident to the one verdict about it.

Why: a GPU that fell off the bus, the rank that hangs on it and the node's fallout are one incident
with one culprit. How: the finding of the highest level is the root; what the others prove about the
same component becomes evidence, everything else they touch is a victim.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.calibration import calibrated_ppm
from nemesis.processors.attribution.certainty import CLASS_PPM_MIN, NAMED_PPM_MIN, as_certain
from nemesis.processors.attribution.exits import judge_exits
from nemesis.processors.attribution.findings import (
    NODE_SILENT,
    NOT_UNDERSTOOD,
    OUT_OF_MEMORY,
    RANK_EXITED,
    STORAGE_SILENT,
    TEXT_CHARS_MAX,
    UNEXPLAINED,
    Finding,
    Proof,
)
from nemesis.processors.attribution.gpu_sign_findings import judge_gpu_signs
from nemesis.processors.attribution.host_sign_findings import judge_host_signs
from nemesis.processors.attribution.incidents import SERVER_SILENT, Incident, Silence
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_findings import judge_kernel
from nemesis.processors.attribution.programs import speaks_of_process, weighed_program
from nemesis.processors.attribution.steps import Steps
from nemesis.schemas import components
from nemesis.schemas.inferred import Culprit, Evidence, FaultAttributed, RuledOut

EVIDENCE_MAX: Final = 16
VICTIMS_MAX: Final = 64
NAMED_MAX: Final = 2
RULED_OUT_MAX: Final = 8
HARDWARE: Final = frozenset({"gpu", "nic", "nvlink", "nvswitch", "dimm", "node"})


def findings_of(incident: Incident, inventory: Inventory, steps: Steps) -> list[Finding]:
    """What each kind of evidence proves, the root first."""
    found: list[Finding] = []
    for node in sorted({clue.node for clue in incident.clues}):
        found += _of_kernel(node, incident, inventory, steps)
    found = _with_server(found, incident)
    exited = judge_exits(incident.exits, inventory, steps, incident.acquitted)
    stuck = incident.stuck
    if stuck is not None and exited is not None and not exited.culprits:
        stuck = _without_followers(stuck, incident)
    if stuck is not None and _waits_for_server(stuck, found, inventory):
        stuck = replace(stuck, level=STORAGE_SILENT - 1)
    found += [each for each in (exited, stuck) if each is not None]
    found += incident.told.values()
    found += judge_gpu_signs(incident, inventory)
    found += judge_host_signs(incident)
    silences = [each for each in incident.silences if not _is_outlived(each, inventory, steps)]
    if silences:
        found.append(_silent(silences, inventory))
    killed = {each.pid for each in incident.exits if each.pid}
    left = {each.node for each in incident.exits if each.code > 0 and not each.signal}
    # of findings that explain as much, the surer one; never the one whose node is named first
    found.sort(key=lambda each: (-_level(each, killed, left), -each.confidence_ppm, each.culprits))
    return _named_first(found)


def _of_kernel(
    node: str, incident: Incident, inventory: Inventory, steps: Steps
) -> Iterator[Finding]:
    """What the kernel of one node proves; what it says of a process, where that is nobody's, must
    not hide what else it says."""
    clues = [clue for clue in incident.clues if clue.node == node]
    finding = judge_kernel(node, clues, inventory)
    if finding is None:
        return
    weighed = weighed_program(finding, clues, incident, inventory, steps)
    if weighed is not None:
        yield weighed
    others = [clue for clue in clues if not speaks_of_process(clue)]
    if others and (weighed is None or weighed.level < finding.level):
        rest = judge_kernel(node, others, inventory)
        if rest is not None:
            yield rest


def _named_first(found: list[Finding]) -> list[Finding]:
    """Where the root says no more than a class, a finding of that class that names a part is it:
    both say what failed, and one of them where."""
    if not found or found[0].verdict != "class-only" or found[0].fault_class == "unknown":
        return found
    level = found[0].level
    for at, each in enumerate(found):
        if each.verdict == "attributed" and each.fault_class == found[0].fault_class:
            return [replace(each, level=level), *found[:at], *found[at + 1 :]]
    return found


def _with_server(found: list[Finding], incident: Incident) -> list[Finding]:
    """A file server that several clients miss is at fault itself, and not their ways to it.

    Where only one tells of it, its way to the server is its own network: while its polls arrive
    and none of its links is down, that works.
    """
    clients: dict[str, set[str]] = {}
    for clue in incident.clues:
        if clue.message.kind == SERVER_SILENT:
            clients.setdefault(clue.message.label, set()).add(clue.node)
    missed = {name: nodes for name, nodes in clients.items() if len(nodes) > 1} or clients
    told = [each for each in found if each.fault_class == "storage"]
    if len(missed) != 1 or not told:
        return found
    ((name, nodes),) = missed.items()
    count, server = len(nodes), f"storage/{name}"
    if count == 1 and nodes.isdisjoint(incident.reached):
        return found
    because, reason, ppm = (
        (f"{count} clients of it miss the same server at once", f"{count} nodes", 900_000)
        if count > 1
        else ("polls of it arrive and its links are up", next(iter(nodes)), 700_000)
    )
    proofs = tuple(proof for each in told for proof in each.proofs)
    whole = replace(
        told[0],
        verdict="attributed",
        reason=f"{server} does not answer {reason}",
        confidence_ppm=ppm,
        culprits=(server,),
        victims=tuple(sorted(components.node(each) for each in nodes)),
        proofs=proofs,
        missing=(wanted.SERVER_LOG,),
        ruled_out=(
            RuledOut(says="the network of one client", because=because, fact=proofs[0].fact),
        ),
    )
    return [each for each in found if each.fault_class != "storage"] + [whole]


def _waits_for_server(stuck: Finding, found: Sequence[Finding], inventory: Inventory) -> bool:
    """Whether the ranks that hold the others up run where a file server does not answer."""
    clients = {
        node
        for each in found
        if each.fault_class == "storage" and each.verdict == "attributed"
        for node in each.victims
    }
    seats = [seat for name in stuck.culprits for seat in inventory.seats_of(name)]
    nodes = {components.node(inventory.node_of_rank(each.job, each.rank)) for each in seats}
    return bool(nodes) and nodes <= clients


def _without_followers(stuck: Finding, incident: Incident) -> Finding:
    """Ranks that gave up after the job had stopped have no dump, and that proves nothing."""
    ended = {components.rank(each.job, each.rank) for each in incident.exits}
    if not stuck.culprits or not ended.issuperset(stuck.culprits):
        return stuck
    return replace(
        stuck,
        verdict="insufficient",
        fault_class="unknown",
        reason="the ranks that wrote no dump had given up before: what stopped the others is not"
        " shown",
        confidence_ppm=0,
        level=UNEXPLAINED,
        culprits=(),
        victims=(),
    )


def _level(finding: Finding, killed_pids: set[int], nodes_left: set[str]) -> int:
    """A process that the kernel killed for memory explains the exit of that very process, and of
    ranks of its node that then left with an error: a worker of theirs is gone."""
    if finding.level == OUT_OF_MEMORY and all(n.startswith("process/") for n in finding.culprits):
        pids = {int(name.rsplit("/", 1)[1]) for name in finding.culprits}
        nodes = {name.split("/")[1] for name in finding.culprits}
        follows = pids & killed_pids or nodes & nodes_left
        return RANK_EXITED + 1 if follows else finding.level
    return finding.level


def _is_outlived(silence: Silence, inventory: Inventory, steps: Steps) -> bool:
    """Whether nodes that train took part in a step after they were last heard.

    One without light on its links is dead all the same: its job may have gone on without it.
    """
    seats = [seat for node in silence.nodes for seat in inventory.seats_on(node)]
    got_on = (steps.has_got_on_since(each.job, silence.due_ns) for each in seats)
    return (silence.has_light or bool(silence.domain)) and any(got_on)


def _silent(silences: Sequence[Silence], inventory: Inventory) -> Finding:
    nodes = sorted({node for each in silences for node in each.nodes})
    proofs = tuple(each.proof for each in silences)
    domain = next((each.domain for each in silences if each.domain), "")
    rack = inventory.whole_rack(nodes)
    if rack and not any(each.has_light for each in silences):
        return Finding(
            verdict="attributed",
            fault_class="unknown",
            reason=f"all {len(nodes)} nodes of rack {rack} fell silent together, and no other did",
            confidence_ppm=700_000,
            level=NODE_SILENT,
            culprits=(f"rack/{rack}",),
            victims=tuple(components.node(name) for name in nodes),
            proofs=proofs,
            missing=(wanted.CONSOLE, wanted.MANAGEMENT_NETWORK),
        )
    if domain:
        return _silent_together(nodes, domain, silences, inventory)
    return Finding(
        verdict="attributed",
        fault_class="unknown",
        reason=f"{' and '.join(nodes)} stopped reporting while the others go on",
        confidence_ppm=800_000,
        level=NODE_SILENT,
        culprits=tuple(components.node(name) for name in nodes),
        proofs=proofs,
        missing=(wanted.CONSOLE,),
        # with light on its links nobody may only be polling it, in the middle of a long step
        waits_for_steps=any(each.has_light for each in silences),
    )


def _silent_together(
    nodes: Sequence[str], domain: str, silences: Sequence[Silence], inventory: Inventory
) -> Finding:
    """The way of telemetry may be cut and nothing else: it is the job that tells.

    What trains has light; and where all of a job is silent, nobody saw whether it stands.
    """
    has_light = all(each.has_light for each in silences)
    jobs = {seat.job for node in nodes for seat in inventory.seats_on(node)}
    is_seen = any(not set(inventory.nodes_of(job)) <= set(nodes) for job in jobs)
    is_open = has_light or not is_seen
    return Finding(
        verdict="insufficient" if is_open else "class-only",
        fault_class="unknown" if is_open else "network.fabric",
        reason=f"{len(nodes)} nodes of {domain} fell silent together: they share a network"
        + (", and their links are up" if has_light else ""),
        confidence_ppm=0 if is_open else 700_000,
        level=UNEXPLAINED + 1,
        victims=tuple(components.node(name) for name in nodes),
        proofs=tuple(each.proof for each in silences),
        missing=(wanted.SWITCH_COUNTERS, wanted.MANAGEMENT_NETWORK),
        waits_for_steps=not is_open,
    )


def verdict_of(
    incident: Incident,
    inventory: Inventory,
    steps: Steps,
    at_ns: int,
    *,
    named_ppm_min: int = NAMED_PPM_MIN,
    class_ppm_min: int = CLASS_PPM_MIN,
) -> tuple[FaultAttributed, tuple[int, ...], Finding] | None:
    """(verdict, the sequences it rests on, its root).

    None where nothing is wrong.
    """
    found = findings_of(incident, inventory, steps)
    if not found:
        return None
    root, *others = found
    root = as_certain(
        root, named_ppm_min=named_ppm_min, class_ppm_min=class_ppm_min, late=incident.late
    )
    others = [each for each in others if each.level > NOT_UNDERSTOOD]
    backing = [each.proof for each in incident.supports if each.component in root.culprits]
    proofs = _proofs(root, others, backing)
    seats = sorted(
        {(seat.job, seat.rank) for name in root.culprits for seat in inventory.seats_of(name)}
    )
    jobs = sorted({job for job, _rank in seats} | set(root.jobs) | _own_job(incident))
    first = seats[0][0] if seats else (jobs[0] if jobs else "")
    jobs.sort(key=lambda job: job != first)
    verdict = FaultAttributed(
        at_ns=at_ns,
        reason=root.reason,
        incident=incident.id,
        revision=incident.revisions,
        verdict=root.verdict,
        fault_class=root.fault_class,
        culprits=tuple(Culprit(kind=components.kind_of(name), id=name) for name in root.culprits),
        victims=_victims(root, others, incident, inventory),
        confidence_ppm=calibrated_ppm(root.fault_class, root.culprits, root.confidence_ppm),
        evidence=tuple(
            Evidence(fact=each.fact, says=each.says, text=each.text[:TEXT_CHARS_MAX])
            for each in proofs
        ),
        missing=root.missing,
        driver_action=root.driver_action,
        jobs=tuple(jobs),
        ranks=tuple(rank for job, rank in seats if job == first),
        signature=root.signature,
        late=incident.late,
        ruled_out=_ruled_out(root, others),
        claimed_ppm=root.confidence_ppm,
    )
    causes = tuple(sorted({each.seq for each in proofs}))
    return verdict, causes, root


def refuted(incident: Incident, at_ns: int) -> FaultAttributed:
    """What was said does not hold any more."""
    return FaultAttributed(
        at_ns=at_ns,
        reason="the links that were down are up again"
        if any(each.message.kind == "link_up" for each in incident.clues)
        else "the evidence for it was refuted by what came later",
        incident=incident.id,
        revision=incident.revisions,
        verdict="no-fault",
        fault_class="none",
        late=incident.late,
    )


def _ruled_out(root: Finding, others: Sequence[Finding]) -> tuple[RuledOut, ...]:
    """What the root's own evidence speaks against, then what only follows from it."""
    if root.verdict != "attributed":
        return root.ruled_out
    found = [*root.ruled_out]
    for each in others:
        names = [name for name in each.culprits if name not in root.culprits]
        if names and each.proofs:
            says = f"{' and '.join(names[:NAMED_MAX])} ({each.fault_class})"
            because = f"it follows from {' and '.join(root.culprits[:NAMED_MAX])}: {each.reason}"
            found.append(RuledOut(says=says, because=because, fact=each.proofs[0].fact))
    return tuple(found[:RULED_OUT_MAX])


def _own_job(incident: Incident) -> set[str]:
    return {incident.job} if incident.job else set()


def _proofs(root: Finding, others: Sequence[Finding], backing: Sequence[Proof]) -> list[Proof]:
    """The root's own first, then the counters behind it, then what else was seen."""
    wanted = [*root.proofs, *backing, *(proof for each in others for proof in each.proofs)]
    return list({proof.fact: proof for proof in reversed(wanted)}.values())[::-1][:EVIDENCE_MAX]


def _victims(
    root: Finding, others: Sequence[Finding], incident: Incident, inventory: Inventory
) -> tuple[str, ...]:
    """What shows symptoms and is innocent: what lesser findings name, except parts of a culprit."""
    guilty = set(root.culprits)
    seats = {seat for name in root.culprits for seat in inventory.seats_of(name)}
    own = {components.rank(seat.job, seat.rank) for seat in seats}
    named = set(root.victims)
    if guilty:
        named.update(components.rank(each.job, each.rank) for each in incident.exits)
    for finding in others:
        named.update(finding.victims)
        named.update(name for name in finding.culprits if components.kind_of(name) == "rank")
    return tuple(sorted(named - guilty - own)[:VICTIMS_MAX])
