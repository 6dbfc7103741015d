"""Questions to a state server that are asked in the background, with delayed ACK (paper, section 4.2)."""

import queue
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from typing_extensions import override

from ..runtime.futures import Future, Handle
from . import Coordination, JobSettings
from .client import StateServerClient
from .decision import ExchangeDecision
from .straggler_policies import PolicyDirective

T = TypeVar("T")


class DelayedCoordination(Coordination):
    """A `Coordination` in which only `init` waits; subclasses make the calls in order, in the background.

    Args:
        client: makes the calls.
    """

    def __init__(self, client: Coordination) -> None:
        self.round = client.round
        self.client = client

    @property
    def round_trip(self) -> float:
        """See `Coordination`."""
        return self.client.round_trip

    def init(self, settings: JobSettings) -> None:
        """See `Coordination`; it waits for the answer, because other workers depend on it."""
        self._start(lambda: self.client.init(settings)).wait()

    def ask(self, iteration: int, capability: float) -> Handle[ExchangeDecision]:
        """See `Coordination`; the handle is done when the answer has arrived."""
        round = self.round

        def ask() -> ExchangeDecision:
            self.client.round = round
            return self.client.ask(iteration, capability).wait()

        return self._start(ask)

    def reset(
        self,
        round: int,
        rejoin: bool = False,
        members: Sequence[int] | None = None,
        aside: bool = False,
        exchange: float | None = None,
    ) -> None:
        """See `Coordination`."""
        self.round = round
        self._start(lambda: self.client.reset(round, rejoin, members, aside, exchange))

    def report_steps(self, since: int, steps: int, seconds: float) -> Handle[PolicyDirective]:
        """See `Coordination`; the handle is done when the answer has arrived."""
        return self._start(lambda: self.client.report_steps(since, steps, seconds).wait())

    @abstractmethod
    def _start(self, call: Callable[[], T]) -> Future[T]:
        """Make a call after those before it; return the handle of its answer."""


class DelayedClient(DelayedCoordination):
    """Makes the calls in a thread; if RESET fails, the next question raises its error.

    Args:
        client: makes the calls.
    """

    def __init__(self, client: StateServerClient) -> None:
        super().__init__(client)
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="state server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel pending calls, and close the connection."""
        self._calls.put(None)
        self.client.close()
        self._thread.join(1.0)

    @override
    def _start(self, call: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()
        self._calls.put((call, answer))
        return answer

    def _work(self) -> None:
        failure: BaseException | None = None
        while (item := self._calls.get()) is not None:
            call, answer = item
            if failure is None:
                try:
                    answer.complete(call())
                    continue
                except BaseException as error:
                    failure = error
            answer.fail(failure)
