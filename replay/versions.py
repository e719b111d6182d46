"""The processors that a log names by version: made here, or the release that has them is named."""

from collections.abc import Mapping
from typing import Final

from nemesis import __version__
from nemesis.processors.catalogue import CATALOGUE, RELEASES, Catalogue
from nemesis.processors.processor import Processor
from nemesis.replay.course import MakeProcessor
from nemesis.schemas.errors import NemesisError

DISTRIBUTION: Final = "nemesis-gpu"


class VersionNotHereError(NemesisError):
    """This release does not have the version of a processor that a log names."""

    exit_code = 3


def maker(
    recorded_by: str,
    catalogue: Catalogue = CATALOGUE,
    releases: Mapping[str, Mapping[int, str]] = RELEASES,
) -> MakeProcessor:
    """Makes processors by name and version; `recorded_by` is the release that wrote the log."""

    def make(name: str, version: int) -> Processor:
        here = catalogue.get(name, {})
        if version in here:
            return here[version]()
        release = releases.get(name, {}).get(version, recorded_by)
        raise VersionNotHereError(
            f"{name} version {version} is not in NEMESIS {__version__}",
            hint=f"pip install {DISTRIBUTION}=={release}",
        )

    return make


def latest(name: str, catalogue: Catalogue = CATALOGUE) -> int:
    """Today's version of a processor.

    Raises:
        VersionNotHereError: no processor of that name.
    """
    versions = catalogue.get(name)
    if not versions:
        raise VersionNotHereError(
            f"no processor {name!r} in NEMESIS {__version__}, there are {', '.join(catalogue)}"
        )
    return max(versions)
