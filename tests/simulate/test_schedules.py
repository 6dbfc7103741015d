"""Random schedules, and that the checks would notice if something broke."""

import pytest

from esync import rules
from esync.exchange.ledger import Ledger
from esync.simulate import schedules
from esync.simulate.drawing import MODES, draw
from esync.simulate.invariants import BrokenError, Check

COUNT = 40


def run_all(mode):
    for seed in range(COUNT):
        Check(draw(mode, seed)).run()


@pytest.mark.parametrize("mode", MODES)
def test_random_schedules(mode):
    run_all(mode)


def test_schedules_differ_and_repeat():
    assert len({repr(draw("sync", seed).cluster.workers) for seed in range(20)}) == 20

    def times():
        check = Check(draw("esync", 3))
        check.run()
        return [(sums.ended, sums.waits, sums.iterations) for sums in check.simulation.workers]

    assert times() == times()


@pytest.mark.parametrize("crashes", [False, True])
def test_crashes_are_drawn_where_wanted(crashes):
    drawn = [draw("sync", seed, crashes) for seed in range(30)]
    assert any(worker.crashes for each in drawn for worker in each.cluster.workers) == crashes


def broken(mode, monkeypatch, target, name, replacement):
    monkeypatch.setattr(target, name, replacement)
    with pytest.raises(BrokenError, match=r"--mode \w+ --seed [0-9]+") as error:
        run_all(mode)
    return str(error.value)


def test_a_payload_that_is_applied_twice_is_noticed(monkeypatch):
    def twice(weights, value, state, step):
        return rules.sgd(weights, 2 * value, state, step)

    assert "was applied" in broken("async", monkeypatch, rules, "RULES", {**rules.RULES, "sgd": lambda: twice})


def test_a_round_that_does_not_wait_for_all_is_noticed(monkeypatch):
    text = broken("sync", monkeypatch, Ledger, "due", lambda self: sorted(self.pending))
    assert "was applied" in text or "others" in text or "round" in text


def test_a_coordinator_that_never_says_ready_is_noticed(monkeypatch):
    from esync.coordination import coordinator
    from esync.coordination.decision import Decision

    monkeypatch.setattr(Check, "_check_waits", lambda self: None)
    calls = iter(range(3000))

    def never(*_):
        next(calls)
        return Decision(False)

    assert "StopIteration" in broken("esync", monkeypatch, coordinator, "decide", never)


def test_waiting_too_long_is_noticed(monkeypatch):
    from esync.coordination import coordinator
    from esync.coordination.decision import READY, decide

    def always(records, record, *rest):
        return READY if record.asked > 0 else decide(records, record, *rest)

    assert "its bound is" in broken("esync", monkeypatch, coordinator, "decide", always)


def test_a_worker_that_goes_on_too_early_is_noticed(monkeypatch):
    in_time = Ledger._release

    def release(self, now):
        self.staleness += 1
        in_time(self, now)
        self.staleness -= 1

    assert "exchanges ahead of worker" in broken("ssp", monkeypatch, Ledger, "_release", release)


def test_the_program_prints_seeds_that_break(monkeypatch, capsys):
    assert schedules.main(["--mode", "sync", "--schedules", "3"]) == 0
    assert capsys.readouterr().out.startswith("sync: 3 schedules, 0 broken, in ")
    monkeypatch.setattr(Ledger, "due", lambda self: [])
    assert schedules.main(["--mode", "sync", "--seed", "2", "--no-crashes"]) == 1
    out = capsys.readouterr().out
    assert "sync, seed 2: DeadlockError: deadlock at" in out
    assert "sync: 1 schedules, 1 broken" in out
    assert "the commits of the others" in out
