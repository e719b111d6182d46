"""How bad a line of a log says that it is, whoever wrote it and whatever it is about.

Why: nobody's list of messages is complete, and an all-clear beside a failure that no rule knows is
false. How: a line shows that something failed in one of three ways. Its level: a logger prints one
before the message, and a line whose level is below an error is none, whatever words it holds. Its
form: an exception's name before a colon, a status that is not zero, a measure that is no number
(NaN). Its words: a word of failure
that is not denied (`no errors`, `failed: 0`), is no measure (`error 0.12`) and no setting
(`timeout=600`). What failed is not asked here, so nothing is ever blamed for it.

Levels: Abseil and glog (E0613), ibdiagnet (-E-), Python logging, logrus and slog (level=), RFC 5424
severities, NCCL (src/debug.cc knows WARN, INFO and TRACE: WARN is the worst).
"""

import re
from typing import Final

_HEAD_CHARS: Final = 160  # a level stands before the message
_LETTER_MARK: Final = r"(?:\d{3,4}(?=[ \]])| (?=\w+\.cpp:))"
_LEVELS: Final = (
    r"(?:^|[\s\[(|<\"'=:-])(?<!error:)(?:(?P<bad>ERROR|ERR|FATAL|CRITICAL|CRIT|SEVERE|PANIC|EMERG|ALERT)"
    r"|(?P<mild>WARNING|WARN|NOTICE|INFO|DEBUG|TRACE|VERBOSE))(?=[\])|>:\s\"',-]|\Z)"
    r"|\b(?:level|lvl|severity|levelname)\"?\s?[=:]\s?\"?(?:(?P<key_bad>err|fatal|crit|panic|alert"
    r"|emerg)|(?P<key_mild>warn|info|debug|notice|trace))"
    rf"|(?:^|\[)(?:(?P<letter_bad>[EF])|(?P<letter_mild>[WI])){_LETTER_MARK}"
    r"|^\s*-(?:(?P<dash_bad>E)|(?P<dash_mild>[WI]))- "
    r"|(?P<nccl>NCCL WARN)"
    r"|^(?:[\w./-]+(?:\[\d+\])?: )?(?P<said>error|fatal)(?: error)?: "
)
_LEVEL: Final = re.compile(_LEVELS)
_MILD: Final = frozenset({"mild", "key_mild", "letter_mild", "dash_mild"})
_FORM: Final = re.compile(
    r"^\s*(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failure|Fault|Interrupt)(?::|\Z)"
    r"|\bTraceback \(most recent call last\)|\bLast error: \S"
    r"|\b(?:[Ee]xit(?:ed)?(?: with)?(?: ?-?(?:code|status))?|exitcode|return(?:ed)?[ _-]?code|rc"
    r"|returned non-zero exit status)[ :=]+(?:\w+ )?-?[1-9]\d{0,5}\b"
    r"|(?:^|[\s,;:=(\[])-?(?i:nan|inf)(?=[\s,;)\]]|\Z)"
    r"|\bMPI_(?:Abort|ABORT)\b|\berrorcode[ :=]+[1-9]"
    r"|\b[Ss]ignal[ :=]+(?:\d{1,2}\b|SIG\w+)|\berrno[ :=]+[1-9]|\(core dumped\)"
)
_WORDS: Final = (
    *(
        "errors?",
        "errored",
        "fail(?:s|ed|ing|ures?)?",
        "fatal",
        "fault(?:s|ed)?",
        "abort(?:s|ed|ing)?",
    ),
    *(
        "timed? ?-?out",
        "timeouts?",
        "crash(?:es|ed|ing)?",
        "corrupt(?:s|ed|ion)?",
        "hangs?",
        "hung",
    ),
    *("stuck", "dead ?lock(?:s|ed)?", "lost", "panic(?:ked)?", "refused", "unreachable", "killed"),
    *("terminated", "died", "dead", "unable to", "cannot", "could ?n[o']t", "could not", "can't"),
    *("denied", "mismatch(?:es|ed)?", "unexpected(?:ly)?", "exceeded", "expired", "evicted"),
    *("unhealthy", "degraded", "not ?ready", "not responding", "no such", "does not exist"),
    *(
        "unrecoverable",
        "uncorrectable",
        "offline",
        "stale",
        "throttl\\w+",
        "preempted",
        "cancel+ed",
    ),
    *("overflow", "underflow", "out of(?! 0)"),
)
_WORD: Final = re.compile(rf"\b(?:{'|'.join(_WORDS)})(?!\w)", re.IGNORECASE)
# a report's row is as bad as its value; a heading of one, and a remark, say nothing
_ROW: Final = re.compile(r"\s*(?=\S)[\w .()/#-]{1,48}?\s+: (?P<value>.*)\Z")
_HEADING: Final = re.compile(
    r"\s*(?:Errors|Warnings|Failures|Faults):?\Z|\s*(?:[A-Z#][\w#/()-]*\s{2,}){3,}[A-Z][\w()]*\Z"
    r"|\s*(?:#|//|\* )|\s+[A-Z0-9][\w()-]*(?:\s[A-Z0-9][\w()-]*){0,5}\s?:?\Z"
)
_BAD_LEVEL: Final = re.sub(r"\(\?P<(?:\w*mild|letter_bad)>[^)]*\)", "(?!)", _LEVELS)
STARTS: Final = (_ROW, re.compile("[EF]" + _LETTER_MARK))
SIGNS: Final = (
    re.compile(_BAD_LEVEL),
    re.compile(r"\[[EF]" + _LETTER_MARK),
    _FORM,
    *(re.compile(rf"\b{word}(?!\w)", re.IGNORECASE) for word in _WORDS),
)
"""A line that neither begins with one of the first nor has one of the others is not severe."""
_STEMS: Final = (
    *(
        "err",
        "fail",
        "fatal",
        "fault",
        "abort",
        "time",
        "crash",
        "corrupt",
        "hang",
        "hung",
        "stuck",
    ),
    *("dead", "lost", "panic", "refused", "unreach", "kill", "termin", "died", "unable", "cannot"),
    *(
        "could",
        "can't",
        "denied",
        "mismatch",
        "unexpected",
        "exceed",
        "expired",
        "evict",
        "unhealthy",
    ),
    *("degraded", "not ", "no such", "unrecov", "uncorrect", "offline", "inactive", "stale"),
    *("throttl", "preempt", "cancel", "flow", "out of", "exit", "signal", "except", "traceback"),
    *(
        "interrupt",
        "core dumped",
        "rc",
        "return",
        "crit",
        "severe",
        "emerg",
        "alert",
        "nccl warn",
        "nan",
    ),
    *("inf", "-e-", "mpi_abort", "notready", "does not exist"),
)
"""A part of each alternative above, in lower case: most lines hold none."""
_HARMLESS: Final = re.compile(
    # denied, or counted to nothing
    r"\b(?:no|0|zero|without|never|not) (?:\w+ ){0,2}?(?:errors?|fail\w*|faults?|timeouts?"
    r"|mismatch\w*|crash\w*|corrupt\w*|lost|abort\w*)\b"
    r"|\b(?:errors?|fail\w*|faults?|timeouts?|mismatch\w*|lost|dropped|killed|corrupt\w*|exceeded)"
    r"(?: \w+)?\"?\W{0,3}[:=]\s*\"?(?:0\b(?!\.\d)|none\b|no\b|false\b|null\b|n/a\b|-?\s*\Z)"
    # a measure: 0.12, 1.3e-4
    r"|\b(?:errors?|loss|overflow|fail\w*)\b[ \w]{0,12}\W{0,3}-?\d*\.\d+(?:e-?\d+)?\b"
    # a setting, and what would be done
    r"|\btime(?:d )?-?_?outs?(?: \w+)?(?: ?\(\w+\))?\"?\W{0,3}(?:[:=]|is|of|to) ?\"?\d"
    r"|\b(?:set|default|using|with|initial\w*|config\w*)\b.{0,24}\btimeouts?\b"
    r"|\b(?:on|if|in case of|handle|handling|catch|ignore|ignoring|retry|until|unless|whether) "
    r"(?:\w+ ){0,2}?(?:errors?|fail\w*|timeouts?|exceptions?)\b"
    r"|\berror (?:handling|handler|reporting|rate|correction|bars?|code 0|counters?)\b"
    r"|fault toleran|\bfail(?:over|-?fast|-?safe)|\berrors=|\bstderr\b(?!: )"
    # what somebody explains
    r"|\b(?:only if|whether|if (?:the|an?|your))\b"
    # what was mended again
    r"|\b(?:recovered|resolved|succeeded after|back online|retry succeeded)\b",
    re.IGNORECASE,
)

_COUNTED: Final = re.compile(
    r"\b(?:err\w*|fail\w*|fault\w*|discard\w*|drop\w*|timeouts?|retrans\w*|retries|retry|downed|down"
    r"|crc|corrupt\w*|uncorrect\w*|symbol|recover\w*|resets?|nak|aborts?|lost|exceeded|violations?"
    r"|out of|oos|stuck|unhealthy|degraded|inactive|bad|wrong|warning|critical)\b",
    re.IGNORECASE,
)
_MENDED: Final = re.compile(r"\bcorrect(?:ed|able)\b", re.IGNORECASE)


def is_severe(text: str) -> bool:
    """Whether a line, without the prefixes of clocks and runtimes, tells that something failed."""
    if _HEADING.match(text):
        return False
    row = _ROW.match(text)
    text = row["value"] if row else text
    lower = text.lower()
    if text[:1] not in "EF[" and not any(stem in lower for stem in _STEMS):
        return False
    level = _LEVEL.search(text[:_HEAD_CHARS])
    if level is not None and level.lastgroup in _MILD:
        return "NCCL WARN" in text
    if level is None and _FORM.search(text) is None and _WORD.search(text) is None:
        return False
    return _HARMLESS.search(text) is None


def is_of_failure(name: str) -> bool:
    """Whether a counter of this name counts what ought not to happen, or a state is none to be in.

    Names join words by underscores, dots or capitals: `PortRcvErrors`, `rx_discards_phy`.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_./-]+", " ", name)
    return _COUNTED.search(words) is not None and _MENDED.search(words) is None
