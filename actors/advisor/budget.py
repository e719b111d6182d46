"""What one advice has used, and whether the next request still fits.

A request is sent only if its worst case fits into what is left: so no limit is ever passed, and the
answer when one is reached is defined, `SpentError`. Tokens of a request are reckoned from its bytes
before it is sent and taken from the model's own count afterwards.
"""

from typing import Final

from nemesis.actors.advisor.settings import MILLION, Budget, Prices
from nemesis.schemas.errors import NemesisError

BYTES_A_TOKEN: Final = 2
"""English and JSON have about four, so a request is never reckoned too small by this."""
ANSWER_TOKENS_MIN: Final = 256
"""An answer that may be no longer than this is not worth its question."""


class SpentError(NemesisError):
    """A limit of the budget is reached; `limit` is its name in the settings."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"the advisor's budget is spent: {limit}")
        self.limit: Final = limit


class Meter:
    """Counts of one advice."""

    def __init__(self, budget: Budget, prices: Prices, *, day_cost_microusd: int = 0) -> None:
        """`day_cost_microusd`: what the cell's advice cost in the last 24 hours."""
        self._budget: Final = budget
        self._prices: Final = prices
        self._day_left: Final = budget.day_cost_microusd_max - day_cost_microusd
        self.requests = 0
        self.calls = 0
        self.malformed = 0
        self.tokens_in = 0
        self.tokens_out = 0
        self.cost_microusd = 0

    def allow(self, request_bytes: int) -> int:
        """Count a request in; the tokens that its answer may have.

        Raises:
            SpentError: its worst case does not fit into what is left.
        """
        budget, prices = self._budget, self._prices
        if self.requests >= budget.requests_max:
            raise SpentError("requests_max")
        tokens_in = -(-request_bytes // BYTES_A_TOKEN)
        if self.tokens_in + tokens_in > budget.tokens_in_max:
            raise SpentError("tokens_in_max")
        tokens_out = min(budget.answer_tokens_max, budget.tokens_out_max - self.tokens_out)
        if tokens_out < ANSWER_TOKENS_MIN:
            raise SpentError("tokens_out_max")
        dearest = max(prices.input_microusd, prices.cache_write_microusd)
        question_microusd = -(-tokens_in * dearest // MILLION)
        for limit, most in (
            ("cost_microusd_max", budget.cost_microusd_max),
            ("day_cost_microusd_max", self._day_left),
        ):
            left = most - self.cost_microusd - question_microusd
            if prices.output_microusd:
                tokens_out = min(tokens_out, left * MILLION // prices.output_microusd)
            if left < 0 or tokens_out < ANSWER_TOKENS_MIN:
                raise SpentError(limit)
        self.requests += 1
        return tokens_out

    def charge(
        self, *, tokens_in: int, tokens_out: int, cache_write: int = 0, cache_read: int = 0
    ) -> None:
        """Count what an answer took."""
        self.tokens_in += tokens_in + cache_write + cache_read
        self.tokens_out += tokens_out
        self.cost_microusd += self._prices.cost_microusd(
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cache_write=cache_write,
            cache_read=cache_read,
        )

    def call(self, *, malformed: bool) -> None:
        """Count a call of a tool.

        Raises:
            SpentError: there were too many, or too many that made no sense.
        """
        self.calls += 1
        self.malformed += malformed
        if self.calls > self._budget.calls_max:
            raise SpentError("calls_max")
        if self.malformed > self._budget.malformed_calls_max:
            raise SpentError("malformed_calls_max")
