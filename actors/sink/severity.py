"""How severe a fact is for whoever watches many systems, in the standard library's levels."""

import logging
from collections.abc import Mapping
from typing import Final

_LEVELS: Final[Mapping[str, int]] = {
    "recovery_withheld": logging.ERROR,
    "attempt_failed": logging.ERROR,
    "attempt_outcome_unknown": logging.ERROR,
    "processor_diverged": logging.CRITICAL,
    "log_shortened": logging.CRITICAL,
    "incident_closed": logging.INFO,
    "attempt_completed": logging.INFO,
}


def level_of(fact: str) -> int:
    """The level of a fact's token; a warning, where nothing else is said."""
    return _LEVELS.get(fact, logging.WARNING)
