"""The story of one incident, whole: what the log no longer has of it comes from the archive."""

from nemesis.replay.archive import archived_record, read_cases
from nemesis.replay.slices import matching
from nemesis.schemas.facts import EVENTS_SUBJECT
from nemesis.streams.log import Log
from nemesis.views.incidents import Incident, Incidents, first_seen, found


async def tell(log: Log, id: str) -> tuple[Incident, str]:
    """The incident of this id or the beginning of it, and where it was read.

    Raises:
        NoIncidentError: there is none, or more than one.
        MissingObjectError, DamagedObjectError: the archive does not have what was archived.
    """
    incidents = Incidents()
    async for record in matching(log, EVENTS_SUBJECT):
        incidents.see(record)
    one = found(incidents, id)
    source = "the log"
    seen = await log.get(one.first_seq)
    if seen is None:
        seen = await archived_record(log, (await read_cases(log)).case(one.id), one.first_seq)
        source = "the log and the archive"
    one.first_seen = first_seen(seen) if seen is not None else None
    return one, source
