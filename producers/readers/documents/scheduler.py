"""Documents of schedulers: `kubectl get events|nodes -o json`, `sacct --json`.

Kubernetes API reference, Event v1 and Node v1; SchedMD/slurm src/plugins/data_parser: a state is a
word or, in later releases, an array of words.
"""

from collections.abc import Mapping
from typing import Any

from nemesis.producers.readers.documents.found import Found, line, mapping, maps
from nemesis.producers.readers.jobs.scheduler_states import job_state, node_condition
from nemesis.schemas.observed import SettingRead


def events(document: object) -> Found | None:
    """`kubectl get events -o json`."""
    own = mapping(document)
    items = own.get("items")
    if not isinstance(items, list) or "apiVersion" not in own:
        return None
    if any(each.get("kind") == "Node" for each in maps(items)):
        return None
    return _of_events(items)


def _of_events(items: list[Any]) -> Found:
    for each in maps(items):
        reason, message = str(each.get("reason", "")), str(each.get("message", ""))
        if each.get("kind", "Event") != "Event" or not reason:
            continue
        host = str(mapping(each.get("source")).get("host", ""))
        about = each.get("involvedObject")
        name = f"{about.get('kind', '')}/{about.get('name', '')}" if isinstance(about, dict) else ""
        text = f"{each.get('type', '')} {reason} {name.lower()} {message}"[:2000]
        yield message.partition('"')[0][:60] or reason, line("scheduler", text, host)


def nodes(document: object) -> Found | None:
    """`kubectl get nodes -o json`: conditions, those of node-problem-detector among them."""
    own = mapping(document)
    items = own.get("items", [own])
    found = [each for each in maps(items) if each.get("kind") == "Node"]
    return _of_nodes(found) if found and "apiVersion" in own else None


def _of_nodes(found: list[Mapping[str, Any]]) -> Found:
    for each in found:
        name = str(mapping(each.get("metadata")).get("name", ""))[:63]
        for condition in maps(mapping(each.get("status")).get("conditions")):
            kind = str(condition.get("type", ""))
            said = node_condition(
                name,
                kind,
                str(condition.get("status", "")),
                f"{condition.get('reason', '')} {condition.get('message', '')}".strip(),
            )
            yield f'"{kind}"', said


def accounts(document: object) -> Found | None:
    """`sacct --json`."""
    jobs = mapping(document).get("jobs")
    if not isinstance(jobs, list) or not all("job_id" in each for each in maps(jobs)):
        return None
    return _of_jobs(jobs)


def _of_jobs(jobs: list[Any]) -> Found:
    for each in maps(jobs):
        job = str(each.get("job_id", ""))
        yield f'"{job}"' if isinstance(each.get("job_id"), str) else job, _state(job, each)
        for step in maps(each.get("steps")):
            name = str(mapping(step.get("step")).get("id", ""))[:60]
            yield name or '"step"', _state(name or f"{job}.step", step)


def _state(job: str, told: Mapping[str, Any]) -> SettingRead:
    state = told.get("state", told.get("job_state", ""))
    reason = ""
    if isinstance(state, dict):
        reason, state = str(state.get("reason", "")), state.get("current", "")
    words = state if isinstance(state, list) else [state]
    code = mapping(told.get("exit_code"))
    returned = mapping(code.get("return_code")).get("number", code.get("return_code", 0))
    signal = mapping(mapping(code.get("signal")).get("id")).get("number", 0)
    where = told.get("nodes", "")
    if isinstance(where, dict):
        where = where.get("range") or ",".join(str(name) for name in where.get("list") or [])
    return job_state(
        job, str(words[0] if words else ""), reason, f"{returned}:{signal}", str(where)
    )
