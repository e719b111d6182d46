"""What a step changes."""

from typing import Any, Protocol


class Stateful(Protocol):
    """A module, an optimizer, a schedule."""

    def state_dict(self) -> Any:
        """Everything that makes it what it is."""
        ...

    def load_state_dict(self, state_dict: Any) -> Any:
        """Be as that one was."""
        ...
