"""The autotuner, which chooses among collectives on all ranks alike."""

from esync.exchange.collectives.autotuner import Autotuner


def play(choice: Autotuner, seconds: dict[str, float], exchanges: int) -> None:
    for _ in range(exchanges):
        choice.record(seconds[choice.current])


def test_autotuner_keeps_the_fastest_and_retries_others_when_it_slows_down() -> None:
    choice = Autotuner(["ring", "mpi", "butterfly"])
    assert choice.current == "ring"
    times = {"ring": 0.2, "mpi": 0.3, "butterfly": 0.15}
    play(choice, times, 9)
    assert choice.settled
    assert choice.current == "butterfly"
    assert choice.reason == "measured: butterfly 150.00 ms, ring 200.00 ms, mpi 300.00 ms"
    play(choice, {"butterfly": 0.16}, 50)
    assert choice.current == "butterfly"
    times["butterfly"] = 0.4
    play(choice, times, 40)
    assert choice.settled
    assert choice.current == "ring"
