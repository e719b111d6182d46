"""Words of others on one line of a terminal.

Log lines, names and reasons come from machines that nobody vouches for. A terminal obeys escape
sequences in them (titles, colours, the clipboard), direction marks reorder what is read, and a line
break lets a name write a line of its own. Nothing of this may reach a terminal; JSON escapes it.
"""


def one_line(text: str) -> str:
    """The text with a replacement character for whatever is not printed as itself."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else " " if each == "\t" else "\N{REPLACEMENT CHARACTER}"
        for each in text
    )
