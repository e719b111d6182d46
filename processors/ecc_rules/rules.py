"""The rules: which reading of a GPU's memory puts it into which band, and who says so.

Bands follow what the source tells an operator to do; where nobody published how often such a part
fails, no probability is stated. A rising count of corrected errors alone is no rule: of 38 servers
with an uncorrectable HBM error 3 had a corrected one before (Calchas, USENIX ATC'24,
github.com/wrl297/Calchas), so only its absolute thresholds of operators are here.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from nemesis.schemas.inferred import RiskBand

HOUR_NS: Final = 3600 * 1_000_000_000
DAY_NS: Final = 24 * HOUR_NS

# Of 143 GPUs that stayed in Titan after a double-bit error 9.8 % had another within 30 days, at a
# base rate of 0.3 % (github.com/olcf/TitanGPULife); nodes of InfiniteHBD's trace: 32 %.
PROBATION_NS: Final = 30 * DAY_NS
REPEATED_PPM: Final = 98_000
# Operators' limits of corrected errors since the driver was loaded, the lower one: 20,000,000 on
# ND H100 v5 (Azure/azurehpc-health-checks), 50,000,000 (facebookresearch/gcm, ecc_corrected).
CORRECTED_MAX: Final = 20_000_000
# Of one address bank with parity; per GPU only a hint that the threshold flag must be read
# (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, RMA policy, L2 memory).
SRAM_UNCORRECTABLE_MAX: Final = 4
# The remapper fails for good after so many (same page, DRAM memory); warned of at seven eighths.
REMAPPED_ROWS_MAX: Final = 512 * 7 // 8
GROWING_NS: Final = DAY_NS  # a row remapped so recently: the bank's spare rows are being used up
# A storm: 17,700 a second went on for days, and nobody was told of it (NVIDIA/NVSentinel#1748,
# NVIDIA/DCGM#313). That so many for so long tell it from bursts before a failure is assumed.
STORM_A_SECOND: Final = 1
STORM_NS: Final = 600 * 1_000_000_000
CALM_NS: Final = 600 * 1_000_000_000  # a level must be gone for so long: a reset takes minutes


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One documented threshold."""

    name: str
    band: RiskBand
    says: str
    """What was seen, of a GPU."""
    advice: str
    """What the source makes of it."""
    probability_ppm: int = 0
    horizon_ns: int = 0


RULES: Final = (
    Rule(
        name="remap_failed",
        band="act",
        says="a row could not be remapped",
        advice="NVIDIA's criterion for replacement, once its field diagnostic confirms it",
        probability_ppm=REPEATED_PPM,  # at least: this part had its uncorrectable error
        horizon_ns=PROBATION_NS,
    ),
    Rule(
        name="spare_rows_used",
        band="watch",
        says="a bank is short of spare rows while rows are still being remapped",
        advice="the next remapping in a bank without spare rows fails",
    ),
    Rule(
        name="remapped_rows_max",
        band="watch",
        says=f"{REMAPPED_ROWS_MAX} or more rows are remapped",
        advice="the remapper fails for good after 512",
    ),
    Rule(
        name="sram_uncorrectable_max",
        band="watch",
        says=f"more than {SRAM_UNCORRECTABLE_MAX} uncorrectable errors in its SRAM",
        advice="read its SRAM threshold flag: if these hit one bank it is to be replaced",
    ),
    Rule(
        name="corrected_max",
        band="watch",
        says=f"{CORRECTED_MAX} or more corrected errors since its driver was loaded",
        advice="operators take such a GPU out of service",
    ),
    Rule(
        name="uncorrectable",
        band="record",
        says="an uncorrectable memory error",
        advice="one in ten such GPUs has another within 30 days",
        probability_ppm=REPEATED_PPM,
        horizon_ns=PROBATION_NS,
    ),
    Rule(
        name="remap_pending",
        band="record",
        says="a row remap is pending",
        advice="work may go on, reset the GPU at the next boundary",
    ),
    Rule(
        name="spare_rows_low",
        band="record",
        says="a bank is short of spare rows",
        advice="nothing is wrong as long as no more rows are remapped",
    ),
    Rule(
        name="degraded",
        band="record",
        says="a storm of corrected errors, one a second or more for ten minutes",
        advice="degraded, which is no sign that it will fail: such storms went on for days",
    ),
    Rule(
        name="corrected_rate",
        band="record",
        says="the driver reports a high rate of corrected errors (Xid 92)",
        advice="NVIDIA's Xid catalogue: no action by itself",
    ),
)
"""The gravest first: the first that holds is the one that is told."""

# docs.nvidia.com/deploy/xid-errors: 48, 140 and 171 are uncorrectable errors, 94 contained, 95 not;
# 63 records a remapping, 64 its failure
RULE_OF_XID: Final[Mapping[int, str]] = {
    48: "uncorrectable",
    63: "growing",
    64: "remap_failed",
    92: "corrected_rate",
    94: "uncorrectable",
    95: "uncorrectable",
    140: "uncorrectable",
    171: "uncorrectable",
}
HOLDS_NS: Final[Mapping[str, int]] = {
    "uncorrectable": PROBATION_NS,
    "remap_failed": PROBATION_NS,
    "growing": GROWING_NS,
    "corrected_rate": DAY_NS,
    "degraded": HOUR_NS,
}
"""How long an event counts; `growing` is a condition of spare_rows_used and no rule."""
