"""One thing that was looked at, how it stands, and what would mend it."""

from typing import Literal

import msgspec

Standing = Literal["ok", "not here", "gap", "broken"]
"""not here: this machine has nothing of the kind, or nobody asked for it, and nothing is amiss;
gap: it is there or wanted and not used to the full; broken: it should work and does not."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at."""

    area: Literal["node", "installation", "cell"]
    name: str
    state: Standing
    says: str
    mend: str = ""
    """A command, or what to change where."""

    @property
    def amiss(self) -> bool:
        """Whether something is to be done."""
        return self.state in ("gap", "broken")
