"""What is remembered of one GPU's memory: its last readings and which rules hold until when.

Levels hold as long as they are read and for a while after, events for their time. So a band goes up
at once and comes down only after calm. A counter that falls was reset with its driver or its node:
it counts from there on; a reading that could not be taken changes nothing.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from nemesis.processors.ecc_rules.rules import (
    CALM_NS,
    CORRECTED_MAX,
    HOLDS_NS,
    REMAPPED_ROWS_MAX,
    RULES,
    SRAM_UNCORRECTABLE_MAX,
    STORM_A_SECOND,
    STORM_NS,
    Rule,
)
from nemesis.schemas.channels import ABSENT, GPU_CHANNELS
from nemesis.schemas.inferred import RiskBand

CHANNELS: Final = GPU_CHANNELS[:8]
"""The memory's, the first of a GPU's row."""
SECOND_NS: Final = 1_000_000_000
MINUTE_NS: Final = 60 * SECOND_NS
STANDING_NS: Final = 2**62  # a level that is read now has no end
_AT: Final = {name: at for at, name in enumerate(CHANNELS)}


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The fact with which a rule began to hold."""

    fact: str
    seq: int
    says: str
    text: str = ""


class GpuMemory(msgspec.Struct):
    """One GPU of which there is something to remember."""

    readings: list[int]
    """The last known of each channel."""
    until_ns: dict[str, int] = {}
    """Rule, or `growing`, to the log time until which it holds."""
    proofs: dict[str, Proof] = {}
    band: RiskBand = "clear"
    incident: str = ""
    minute_ns: int = 0
    """When corrected errors were last held against time, and how many there were."""
    minute_count: int = 0
    storm_ns: int = 0
    """Since when they come as in a storm; 0: they do not."""

    def holding(self, now_ns: int) -> Rule | None:
        """The gravest rule that holds."""
        for rule in RULES:
            if self.until_ns.get(rule.name, 0) > now_ns:
                return rule
        return None

    def forget(self, now_ns: int) -> None:
        """Drop what holds no more."""
        over = [name for name, until_ns in self.until_ns.items() if until_ns <= now_ns]
        for name in over:
            del self.until_ns[name]
            del self.proofs[name]

    def happen(self, name: str, proof: Proof, now_ns: int) -> None:
        """An event counts for its time."""
        self._hold(name, now_ns + HOLDS_NS[name], proof)
        self._see_levels(proof, now_ns)

    def read(self, row: Sequence[int], proof: Proof, now_ns: int) -> None:
        """Take new readings."""
        for name, event in (("dram_ue_count", "uncorrectable"), ("remapped_rows_count", "growing")):
            at = _AT[name]
            if row[at] > self.readings[at]:
                says = f"{name} {self.readings[at]} before, {row[at]} now"
                self._hold(
                    event, now_ns + HOLDS_NS[event], msgspec.structs.replace(proof, says=says)
                )
        self.readings = [
            old if new == ABSENT else new for old, new in zip(self.readings, row, strict=True)
        ]
        self._see_storm(proof, now_ns)
        self._see_levels(proof, now_ns)

    def _see_storm(self, proof: Proof, now_ns: int) -> None:
        """Once a minute: how many corrected errors came in it."""
        passed_ns = now_ns - self.minute_ns
        if passed_ns < MINUTE_NS:
            return
        count = self.readings[_AT["dram_ce_count"]] + self.readings[_AT["sram_ce_count"]]
        came = count - self.minute_count if count >= self.minute_count else count
        unheard = 2 * passed_ns > 3 * MINUTE_NS  # what did not change is not read: none came
        if unheard or came * SECOND_NS < STORM_A_SECOND * passed_ns:
            self.storm_ns = 0
        elif not self.storm_ns:
            self.storm_ns = self.minute_ns
        self.minute_ns, self.minute_count = now_ns, count
        if self.storm_ns and now_ns - self.storm_ns >= STORM_NS:
            says = f"{came} corrected errors in the last {passed_ns // SECOND_NS} s"
            self._hold(
                "degraded",
                now_ns + HOLDS_NS["degraded"],
                msgspec.structs.replace(proof, says=says),
            )

    def _see_levels(self, proof: Proof, now_ns: int) -> None:
        value = dict(zip(CHANNELS, self.readings, strict=True))
        low = value["banks_spare_low_count"] > 0
        corrected = value["dram_ce_count"] + value["sram_ce_count"]
        growing_ns = self.until_ns.get("growing", 0)
        self._level("remap_failed", value["remap_failed"] > 0, proof, now_ns)
        self._level("remap_pending", value["remap_pending"] > 0, proof, now_ns)
        self._level("spare_rows_low", low, proof, now_ns)
        rows = value["remapped_rows_count"]
        self._level("remapped_rows_max", rows >= REMAPPED_ROWS_MAX, proof, now_ns)
        many = value["sram_ue_count"] > SRAM_UNCORRECTABLE_MAX
        self._level("sram_uncorrectable_max", many, proof, now_ns)
        self._level("corrected_max", corrected >= CORRECTED_MAX, proof, now_ns)
        if low and growing_ns > now_ns:
            self._hold("spare_rows_used", growing_ns, proof)

    def _level(self, name: str, there: bool, proof: Proof, now_ns: int) -> None:
        if there:
            self._hold(name, STANDING_NS, proof)
        elif self.until_ns.get(name) == STANDING_NS:
            self.until_ns[name] = now_ns + CALM_NS

    def _hold(self, name: str, until_ns: int, proof: Proof) -> None:
        self.until_ns[name] = max(until_ns, self.until_ns.get(name, 0))
        self.proofs.setdefault(name, proof)


def is_worth_remembering(row: Sequence[int]) -> bool:
    """Whether a row says anything at all about the memory."""
    return any(value not in (0, ABSENT) for value in row)
