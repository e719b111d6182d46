"""The one base of every error that NEMESIS raises on purpose."""


class NemesisError(Exception):
    """Something outside the program is wrong.

    `message` says what, where and what was expected; `hint` is the next thing to do or type.
    `exit_code` is the command's exit status: 1 failed, 2 usage, 3 nothing found or not ready,
    4 refused by safety.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def code(self) -> str:
        """The error's name for programs, for example `newer_schema`."""
        name = type(self).__name__.removesuffix("Error")
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class MalformedFactError(NemesisError):
    """A payload does not fit the schema of its subject; names the field and the value."""


class UnknownFactError(NemesisError):
    """A subject or a type that this release does not know; a newer one may."""

    exit_code = 3


class BadNameError(NemesisError):
    """A name that cannot be a component or a subject token."""

    exit_code = 2
