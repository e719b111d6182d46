"""How something of a node or a program is set becomes a `setting` fact, at start and at change."""

from nemesis.producers.origin import Origin
from nemesis.schemas.observed import SettingRead


def setting_of(origin: Origin, at_ns: int, *, component: str, name: str, value: str) -> SettingRead:
    """The fact of one setting; `nics.mtu` of a node stands for all its NICs that say nothing."""
    return SettingRead(
        **origin.stamp("setting", at_ns), component=component, name=name, value=value
    )
