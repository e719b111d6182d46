"""A page of HTML that needs nothing else: no script, no font, no picture, no network.

A policy in the page forbids them all, so a log line cannot bring one in. Who fills it escapes every
word.
"""

import base64
from collections.abc import Iterable
from hashlib import sha256
from html import escape

from nemesis.views.report.style import STYLE


def document(*, title: str, header: str, sections: Iterable[str], footer: str) -> str:
    """The whole document; all but the title is HTML already."""
    hashed = base64.b64encode(sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title>"
        f"<style>{STYLE}</style></head><body><main>"
        f"<header>{header}</header>"
        f"{''.join(sections)}"
        f"<footer>{footer}</footer></main></body></html>\n"
    )


def section(title: str, body: str) -> str:
    """A section with its heading; nothing where there is nothing to say."""
    return f"<section><h2>{title}</h2>{body}</section>" if body else ""


def items(texts: Iterable[str]) -> str:
    """A list of plain texts."""
    inside = "".join(f"<li>{escape(each)}</li>" for each in texts)
    return f"<ul>{inside}</ul>" if inside else ""
