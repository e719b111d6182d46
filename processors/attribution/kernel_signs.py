"""Whether a line that no rule explains sounds like trouble.

Why: nobody's list of messages is complete, and silence about a line that was not understood is a
false all-clear. How: the kernel's own priority and a few words are signs of trouble, unless
healthy machines print the line at every boot. A link that went down is a sign until it is up
again. Not here: lines that rules explain (kernel_messages.py).

The idea of a list of harmless lines: imbue-ai/cluster-health, health_checks. Shapes of link lines:
Linux drivers/net/bonding/bond_main.c, net/ipv6/addrconf.c and the drivers' own.
"""

import re
from typing import Final

from nemesis.processors.attribution.kernel_messages import KernelMessage, parse
from nemesis.schemas.components import pci_address

PRIORITY_ERR: Final = 3  # KERN_ERR; smaller is worse
KIND_CHARS_MAX: Final = 80

_SIGN: Final = re.compile(
    r"error|\bfail(?!over)|\bfatal|\babort|\btime(?:d )?-?out|\breset|\bunplugged|\boffline|panic"
    r"|corrupt|\bstuck\b|\bdenied\b|\bdown\b|\bdead\b|\bhung\b|\bhangs?\b|\blost\b|not respond"
    r"|\bunreachable|above threshold|throttled|call trace|\boops\b|\bbug: |compromised"
    r"|unrecover|uncorrect|NVRM: Xid\b",
    re.IGNORECASE,
)
_STEMS: Final = (
    "error",
    "fail",
    "fatal",
    "abort",
    "time",
    "reset",
    "unplugged",
    "offline",
    "panic",
    "corrupt",
    "stuck",
    "denied",
    "down",
    "dead",
    "hung",
    "hang",
    "lost",
    "not respond",
    "unreachable",
    "above threshold",
    "throttled",
    "call trace",
    "oops",
    "bug: ",
    "compromised",
    "unrecover",
    "uncorrect",
    "xid",
)
"""A part of each alternative of _SIGN: to look for these is ten times as fast."""
_HARMLESS: Final = re.compile(
    # what the firmware and the boot loader handed over
    r"\bcommand line: |^(?:ERST|EINJ|HEST|GHES|tsc|clocksource|hpet|kvm|ima|integrity|evm): "
    r"|^ACPI: |^audit: |^audit\(|\bACPI (?:BIOS )?(?:Error|Warning|Exception)|\b_OSC\b|\bAE_[A-Z_]+"
    r"|\[Firmware (?:Bug|Warn|Info)\]|X\.509|blacklisting hash|MODSIGN|lockdown|locked down"
    r"|failed to assign \[(?:io|mem)|error containment capabilities|\bi8042\b"
    # drivers that look for what need not be there
    r"|Direct firmware load for \S+ failed with error -2|regulatory\.db|failed to load firmware"
    r"|module verification failed|hub doesn't have any ports|No Caching mode page"
    r"|Assuming drive cache|SATA link down|failed to read out thermal zone|snd_hda|bluetooth"
    r"|\bdev (?:fd|sr)\d|probe of (?:i8042|tpm\S*|rtc\S*) failed"
    # settings
    r"|\berrors=(?:remount-ro|continue|panic)|\bpanic[=_.]|\btimeout[=_]|timeout set"
    r"|\berror (?:reporting|handling|injection|correction)\b|errors?[:=] ?0\b|\bno errors?\b"
    r"|reset[_ ]methods?\b|diag reset|\breset (?:full|low|high|super)[- ]?speed"
    # what was set right, and what was asked for
    r"|\bcorrect(?:ed|able)\b|EDAC \S+ \d+ CE |error status/mask=|\bCPU ?\d+ is now offline"
    r"|\b(?:power|shut|count|clamp|spin|tear)\w*[- ]down\b"
    # docs.nvidia.com/networking: an empty cage, and a register that this firmware has not
    r"|Port module event: module \d+, Cable (?:un)?plugged|ACCESS_REG\(0x805\)"
    r"|\brecovery succeeded\b",
    re.IGNORECASE,
)
"""Lines of healthy machines: that they are known says nothing about lines beside them."""
_LINK: Final = re.compile(
    r"\b([a-z][\w.-]{0,14})\)?:? (?:NIC )?link (?:status )?(?:definitely |is |becomes )?"
    r"(?:(down)|up|ready)\b",
    re.IGNORECASE,
)
_NO_PORTS: Final = frozenset({"sata", "nic", "the", "port"})
_PCI: Final = re.compile(
    r"(?:\b([a-z]\w{1,19}) )?\b([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b"
)
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


def sign_in(text: str, priority: int) -> KernelMessage | None:
    """The sign of trouble in a line that no rule explains, None where there is none."""
    lower = text.lower()
    link = _LINK.search(text) if "link" in lower else None
    if link is not None and link[1].lower() not in _NO_PORTS:
        device = _PCI.search(text)
        return KernelMessage(
            kind="link_down" if link[2] else "link_up",
            device=pci_address(device[2]) if device else "",
            driver=(device[1] or "") if device else "",
            label=link[1],
        )
    if priority > PRIORITY_ERR and not (
        any(stem in lower for stem in _STEMS) and _SIGN.search(text)
    ):
        return None
    if _HARMLESS.search(text):
        return None
    return KernelMessage(kind="not_understood", label=_NUMBER.sub("0", text)[:KIND_CHARS_MAX])


def is_telling(text: str, priority: int) -> bool:
    """Whether a line says anything to any rule."""
    return parse(text) is not None or sign_in(text, priority) is not None
