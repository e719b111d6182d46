"""Who sent a webhook, and when: the signature of the Standard Webhooks specification.

Signed is `<id>.<seconds>.<body>`, by HMAC-SHA256 with a secret that both know
(github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md). Libraries in many
languages verify it; they refuse a time that is more than minutes away.
"""

import base64
import binascii
import hashlib
import hmac
from pathlib import Path
from typing import Final

from nemesis.schemas.errors import NemesisError

PREFIX: Final = "whsec_"
BYTES_MIN: Final = 24  # the specification's least


class BadSecretError(NemesisError):
    """A secret that nobody could verify with."""

    exit_code = 2


def secret_in(path: Path) -> bytes:
    """The secret that a file holds as `whsec_<base64>`.

    Raises:
        BadSecretError: the file cannot be read, or holds no such secret.
    """
    try:
        text = path.read_text().strip()
        secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except OSError as error:
        raise BadSecretError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, binascii.Error, ValueError):
        secret, text = b"", ""
    if len(secret) < BYTES_MIN or not text.startswith(PREFIX):
        raise BadSecretError(
            f"{path} holds no secret: whsec_ and the base64 of at least {BYTES_MIN} bytes",
            hint=f'printf "whsec_%s" "$(openssl rand -base64 32)" >{path}',
        )
    return secret


def headers(secret: bytes, id: str, at_s: int, body: bytes) -> dict[str, str]:
    """What goes with a body: its id, its time and its signature."""
    signed = hmac.new(secret, f"{id}.{at_s}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
