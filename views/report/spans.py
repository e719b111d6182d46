"""Lengths of time in words that people read at a glance."""

SECOND_NS = 1_000_000_000


def span(ns: int) -> str:
    """73 ms, 2.6 s, 4 min 58 s, 3 h 12 min, 2 d 4 h."""
    if ns < 0.9995 * SECOND_NS:
        return f"{ns / 1e6:.0f} ms"
    if ns < 59.95 * SECOND_NS:
        return f"{ns / 1e9:.1f} s"
    minutes, seconds = divmod(round(ns / 1e9), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def after(ns: int) -> str:
    """Since a beginning: +0.7 s, +4 min 58 s."""
    return f"{'-' if ns < 0 else '+'}{span(abs(ns))}"
