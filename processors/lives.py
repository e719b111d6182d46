"""What a producer sent before: a repetition is no news.

A producer numbers its facts from 1 in each life of its process; after a broken connection it sends
the last ones again.
"""

from typing import Final

LIVES_MAX: Final = 8  # producer processes remembered per node and kind; older ones are repetitions

Lives = dict[str, list[tuple[int, int]]]
"""Per `<node>/<kind>`: (start_ns, last n) of its latest producer processes, ascending."""


def is_repeated(known: Lives, source: str, life: tuple[int, int]) -> bool:
    """Whether a producer sent this before; remembers its number if not.

    `source` "": it is no producer's, and cannot be. `life`: (start_ns, n).
    """
    if not source:
        return False
    lives = known.get(source)
    if lives is None:
        known[source] = [life]
        return False
    start_ns, n = life
    latest_ns, last_n = lives[-1]
    if latest_ns == start_ns and last_n < n:
        lives[-1] = life
        return False
    for at, (each_ns, last_n) in enumerate(lives):
        if each_ns == start_ns:
            if n <= last_n:
                return True
            lives[at] = life
            return False
    if len(lives) == LIVES_MAX:
        if start_ns < lives[0][0]:
            return True
        del lives[0]
    lives.append(life)
    lives.sort()
    return False


def copied(known: Lives) -> Lives:
    """What may be changed without changing the original."""
    return {source: list(each) for source, each in known.items()}
