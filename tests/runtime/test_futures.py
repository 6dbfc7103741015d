import threading

import pytest

from esync.runtime.futures import Completed, Future, Handle


def test_future_is_done_when_it_is_completed():
    future: Future[int] = Future()
    assert not future.done()
    future.complete(3)
    assert (future.done(), future.wait()) == (True, 3)


def test_future_that_failed_is_done_and_raises_its_error():
    future: Future[int] = Future()
    future.fail(ValueError("no"))
    assert future.done()
    with pytest.raises(ValueError, match="no"):
        future.wait()


def test_future_wait_returns_when_another_thread_completes_it():
    future: Future[str] = Future()
    waits = threading.Event()

    def complete() -> None:
        waits.wait(60)
        future.complete("here")

    thread = threading.Thread(target=complete)
    thread.start()
    assert not future.done()
    waits.set()
    assert future.wait() == "here"
    thread.join()


class Countdown(Future[str]):
    """Done after so many looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def _poll(self) -> None:
        self.looks -= 1
        if self.looks <= 0:
            self.complete("over")

    def _await(self) -> None:
        while not self.done():
            pass


def test_future_subclass_defines_polling_and_waiting():
    assert [Countdown(2).done(), Countdown(1).done()] == [False, True]
    assert Countdown(5).wait() == "over"


@pytest.mark.parametrize("handle", [Completed(None), Future()])
def test_completed_and_future_have_the_same_interface(handle: Handle[None]):
    if isinstance(handle, Future):
        handle.complete(None)
    assert (handle.done(), handle.wait()) == (True, None)
