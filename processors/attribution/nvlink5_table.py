"""NVLink5 errors. Made by data/xid/make_tables.py; edit the catalogue."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Nvlink5Rule(NamedTuple):
    """How one interrupt of an NVLink5 unit is to be taken."""

    unit: str
    info_mask: int
    info: int
    """Bits of the first register, as drivers from r575 on lay them out."""
    old_info_mask: int
    old_info: int
    """The same for drivers before r575."""
    resolutions: Mapping[int, str]
    """By the value of the second register; ANY_STATUS where none is told apart."""


ANY_STATUS: Final = -1

# fmt: off
NVLINK5_RULES: Final[Mapping[int, tuple[Nvlink5Rule, ...]]] = {
    144: (
        Nvlink5Rule("SAW_MVB",
            0x03F0007F, 0x00000001, 0x03F003FF, 0x00000021, {
            0x00000001: "IGNORE", 0x00000002: "RESET_GPU", 0x00000004: "IGNORE", 0x00000008:
            "IGNORE", 0x00000010: "RESET_GPU", 0x00000020: "IGNORE"
        }),
    ),
    145: (
        Nvlink5Rule("RLW_CTRL",
            0x03F0007F, 0x00000003, 0x03F003FF, 0x00000062, {
            0x80000000: "IGNORE"
        }),
        Nvlink5Rule("RLW_REMAP",
            0x03F0007F, 0x00000004, 0x03F003FF, 0x00000082, {
            0x00000001: "XID_154_EVAL", 0x00000002: "XID_154_EVAL", 0x00000004: "XID_154_EVAL",
            0x00000008: "XID_154_EVAL", 0x00000010: "XID_154_EVAL", 0x00000020: "XID_154_EVAL",
            0x00000040: "RESET_GPU", 0x00000080: "RESET_GPU", 0x00000100: "IGNORE", 0x00000200:
            "IGNORE", 0x80000000: "IGNORE"
        }),
        Nvlink5Rule("RLW_RSPCOL",
            0x03F0007F, 0x00000005, 0x03F003FF, 0x000000A2, {
            0x00000001: "IGNORE", 0x00000002: "RESET_GPU", 0x80000000: "IGNORE"
        }),
        Nvlink5Rule("RLW_RXPIPE",
            0x03F000FF, 0x00000006, 0x03F007FF, 0x000000C2, {
            0x00000001: "IGNORE", 0x00000002: "IGNORE", 0x00000004: "IGNORE"
        }),
        Nvlink5Rule("RLW_RXPIPE",
            0x03F0007F, 0x00000006, 0x03F003FF, 0x000000C2, {
            0x00000008: "IGNORE", 0x80000000: "IGNORE"
        }),
        Nvlink5Rule("RLW_SRC_TRACK",
            0x03F0007F, 0x00000007, 0x03F003FF, 0x000000E2, {
            0x00000001: "RESET_GPU", 0x00000002: "IGNORE", 0x00000004: "XID_154_EVAL", 0x00000008:
            "XID_154_EVAL", 0x00000010: "RESET_GPU", 0x00000020: "RESET_GPU", 0x80000000: "IGNORE"
        }),
        Nvlink5Rule("RLW_TAGSTATE",
            0x03F0007F, 0x00000008, 0x03F003FF, 0x00000102, {
            0x00000001: "IGNORE", 0x00000002: "RESET_GPU", 0x00010000: "IGNORE", 0x00020000:
            "RESET_GPU", 0x00100000: "RESET_GPU", 0x80000000: "IGNORE"
        }),
    ),
    146: (
        Nvlink5Rule("TLW_CTRL",
            0x03F0007F, 0x00000009, 0x03F003FF, 0x00000123, {
            0x00000001: "IGNORE", 0x00000002: "IGNORE", 0x00000004: "RESET_GPU", 0x80000000:
            "IGNORE"
        }),
        Nvlink5Rule("TLW_RX/TLW_RX_PIPE0",
            0x03F0007F, 0x0000000A, 0x03F003FF, 0x00000143, {
            0x00000001: "IGNORE", 0x00000002: "IGNORE", 0x00000004: "RESET_GPU", 0x80000000:
            "IGNORE"
        }),
        Nvlink5Rule("TLW_RX/TLW_RX_PIPE1",
            0x03F0007F, 0x0000000B, 0x03F003FF, 0x00000143, {
            0x00000001: "IGNORE", 0x00000002: "IGNORE", 0x00000004: "RESET_GPU", 0x80000000:
            "IGNORE"
        }),
        Nvlink5Rule("TLW_TX/TLW_TX_PIPE0",
            0x03F0007F, 0x0000000C, 0x03F003FF, 0x00000163, {
            0x00000001: "IGNORE", 0x00000002: "IGNORE", 0x00000004: "RESET_GPU", 0x80000000:
            "IGNORE"
        }),
        Nvlink5Rule("TLW_TX/TLW_TX_PIPE1",
            0x03F0007F, 0x0000000D, 0x03F003FF, 0x00000163, {
            0x00000001: "IGNORE", 0x00000002: "IGNORE", 0x00000004: "RESET_GPU", 0x80000000:
            "IGNORE"
        }),
    ),
    147: (
        Nvlink5Rule("TREX",
            0x03F0007F, 0x0000000E, 0x03F003FF, 0x00000184, {
            0x00000001: "IGNORE", 0x80000000: "IGNORE"
        }),
    ),
    148: (
        Nvlink5Rule("NVLPW_CTRL/NVLPW",
            0x03F0007F, 0x0000000F, 0x03F003FF, 0x00000005, {
            0x80000000: "IGNORE"
        }),
    ),
    149: (
        Nvlink5Rule("NETIR/NETIR_INT",
            0x03F0007F, 0x00000018, 0x03F003FF, 0x00000006, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x00000011, 0x03F003FF, 0x000001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x00100011, 0x03F003FF, 0x001001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x00200011, 0x03F003FF, 0x002001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x00400011, 0x03F003FF, 0x004001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x00A00011, 0x03F003FF, 0x00A001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x00F00011, 0x03F003FF, 0x00F001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x01000011, 0x03F003FF, 0x010001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x01100011, 0x03F003FF, 0x011001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x01200011, 0x03F003FF, 0x012001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x01500011, 0x03F003FF, 0x015001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x01600011, 0x03F003FF, 0x016001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x02000011, 0x03F003FF, 0x020001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x02100011, 0x03F003FF, 0x021001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x02200011, 0x03F003FF, 0x022001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x02300011, 0x03F003FF, 0x023001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x02400011, 0x03F003FF, 0x024001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x02500011, 0x03F003FF, 0x025001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x02600011, 0x03F003FF, 0x026001C6, {
            ANY_STATUS: "IGNORE"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x02800011, 0x03F003FF, 0x028001C6, {
            ANY_STATUS: "IGNORE"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x02A00011, 0x03F003FF, 0x02A001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_LINK_EVT/NETIR_LINK_DOWN",
            0x03F0007F, 0x02B00011, 0x03F003FF, 0x02B001C6, {
            ANY_STATUS: "RESET_GPU"
        }),
        Nvlink5Rule("NETIR_BER_EVENT",
            0x03F0007F, 0x00000013, 0x03F003FF, 0x00000226, {
            0x00000000: "IGNORE", 0x00000001: "IGNORE", 0x00000002: "IGNORE", 0x00000003: "IGNORE"
        }),
        Nvlink5Rule("NETIR_MFDE_EVENT",
            0x03F0007F, 0x00000014, 0x03F003FF, 0x00000246, {
            0x00000001: "RESET_GPU", 0x00000003: "IGNORE", 0x00000004: "RESET_GPU", 0x00000005:
            "RESET_GPU", 0x00000007: "RESET_GPU"
        }),
    ),
    150: (
        Nvlink5Rule("MSE Degraded",
            0x03F0007F, 0x00000000, 0x03F003FF, 0x00000000, {
            0x00000000: "RESET_GPU", 0xFFFFFFFF: "RESET_GPU"
        }),
        Nvlink5Rule("MSE_WATCHDOG",
            0x03F0007F, 0x00000000, 0x03F003FF, 0x00000000, {
            0x00000000: "RESET_GPU"
        }),
    ),
}
# fmt: on
