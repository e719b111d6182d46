"""Tasks that run beside others, and what the first of several has failed with."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def background(*work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Runs beside the body and ends with it; what fails there fails the body."""
    try:
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(each) for each in work]
            try:
                yield
            finally:
                for task in started:
                    task.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group) from None


def first_error(group: BaseExceptionGroup) -> BaseException:
    """What the first of several tasks has failed with."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
