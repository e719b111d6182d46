"""Documents of health checks: `dcgmi diag -j`, and the states that gpud answers with.

NVIDIA DCGM User Guide, diagnostics; leptonai/gpud api/v1: components with states, each with a
health, a reason and what to do.
"""

from nemesis.producers.readers.documents.found import Found, line, mapping, maps
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead


def diagnostics(document: object) -> Found | None:
    """`dcgmi diag -j`."""
    own = mapping(document)
    root = own.get("DCGM Diagnostic", own.get("DCGM GPU Diagnostic"))
    return _of_tests(root.get("test_categories")) if isinstance(root, dict) else None


def _of_tests(categories: object) -> Found:
    for category in maps(categories):
        for test in maps(category.get("tests")):
            name = str(test.get("name", "test")).lower().replace(" ", "_")
            for result in maps(test.get("results")):
                status = str(result.get("status", "")).capitalize()
                gpu = result.get("gpu_id", result.get("entity_id", result.get("gpu_ids")))
                component = f"gpu//{gpu}" if str(gpu).isdecimal() else "node//"
                setting = SettingRead(
                    **unplaced(), component=component, name=f"dcgm.{name}", value=status
                )
                yield f'"{result.get("status", "")}"', setting


def states(document: object) -> Found | None:
    """gpud's `/v1/states`: components and their health."""
    found = list(maps(document))
    if not found or not all("component" in each and "states" in each for each in found):
        return None
    return _of_states(document)


def _of_states(document: object) -> Found:
    for component in maps(document):
        name = str(component["component"])[:60]
        for state in maps(component["states"]):
            health = str(state.get("health", ""))
            reason = str(state.get("reason") or state.get("error") or "")
            setting = SettingRead(
                **unplaced(),
                component="node//",
                name=f"gpud.{name}.{state.get('name', '')}"[:100].lower(),
                value=f"{health}: {reason}"[:500],
            )
            yield f'"{name}"', setting
            if reason and health != "Healthy":
                yield f'"{name}"', line("health", reason, "")
