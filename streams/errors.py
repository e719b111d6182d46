"""What can go wrong between a process and the log. Each says whether trying again makes sense."""

from typing import Final

from nemesis.schemas.errors import NemesisError


class PositionMovedError(NemesisError):
    """Somebody else wrote first: the last sequence of a subject is not the expected one."""


class LogUnavailableError(NemesisError):
    """No answer, or an answer that says "not now": the outcome is unknown, try the same again."""

    exit_code = 3


class LogFullError(NemesisError):
    """The log is at its byte limit or its disk is full; later it may not be."""


class UndeliverableError(NemesisError):
    """The log will never take this: too large, a bad subject, or not ours to write."""


class WrongCredentialsError(NemesisError):
    """The server does not know who we are."""

    exit_code = 3


class InputGapError(NemesisError):
    """The server sent a record that never arrived: this reader has lost input."""


class ShortenedError(NemesisError):
    """The log ends before what was read, or says something else there."""

    def __init__(self, read_seq: int, last_seq: int) -> None:
        super().__init__(
            f"the log was rolled back: record {read_seq} was read and is not there any more,"
            f" it ends at {last_seq}",
            hint="the copy rebuilds its state from the log as it is now",
        )
        self.read_seq: Final = read_seq
        self.last_seq: Final = last_seq


class ServerRunningError(NemesisError):
    """A server of this cell runs already and holds its store."""

    exit_code = 3


class ServerStartError(NemesisError):
    """The embedded server did not come up."""


class ServerMissingError(ServerStartError):
    """There is no nats-server program."""

    exit_code = 3


class PortInUseError(ServerStartError):
    """Another program listens on the port that was asked for."""


class StateFolderError(ServerStartError):
    """The folder for the store cannot be made or written."""


class DiskFullError(ServerStartError):
    """There is no room for the store."""


class ProvisionError(NemesisError):
    """A stream cannot be created or read with these credentials."""


class NoStreamsError(NemesisError):
    """A server that no log has been made on."""

    exit_code = 3


class MissingObjectError(NemesisError):
    """A store does not hold what a fact says it holds."""

    exit_code = 3


class DamagedObjectError(NemesisError):
    """What a store holds under a hash has another one."""
