import pytest

from esync.runtime.errors import DeadlockError
from esync.simulate.engine import CrashError, SimulationEngine, TimedFuture


def test_engine_tasks_meet_in_virtual_time():
    engine, seen = SimulationEngine(), []
    arrived = engine.event()

    def early():
        engine.pass_time(1)
        engine.settle()
        seen.append(("early", engine.now))
        engine.wait(arrived, "the late one")
        seen.append(("early again", engine.now))

    def late():
        engine.pass_time(2.5)
        engine.settle()
        seen.append(("late", engine.now))
        arrived.succeed()
        engine.pass_time(1)
        engine.settle()
        seen.append(("late again", engine.now))

    engine.spawn("late", late)
    engine.spawn("early", early)
    engine.run()
    assert seen == [("early", 1.0), ("late", 2.5), ("early again", 2.5), ("late again", 3.5)]


def test_engine_wait_first_catches_up_with_the_tasks_time():
    """A task that is ahead must not see an older event before its own time."""
    engine, seen = SimulationEngine(), []
    ready = engine.event()

    def work():
        engine.pass_time(5)
        engine.wait(ready, "what has been there since 1 s")
        seen.append(engine.now)

    engine.spawn("worker", work)
    engine.call_at(1.0, ready.succeed)
    engine.run()
    assert seen == [5.0]


def test_engine_deadlock_names_who_waits_for_what():
    engine = SimulationEngine()
    engine.spawn("worker 1", lambda: engine.wait(engine.event(), "the other one"))
    engine.spawn("worker 2", lambda: None)
    with pytest.raises(DeadlockError, match=r"0\.000 s.*worker 1 waits for the other one$"):
        engine.run()


def test_engine_crash_ends_a_waiting_task_for_good():
    engine, seen = SimulationEngine(), []
    ready = engine.event()

    def work():
        try:
            engine.wait(ready, "it")
            seen.append("woken")
        except CrashError:
            seen.append(("crashed", engine.now))
            raise

    task = engine.spawn("worker", work)
    engine.call_at(1.0, engine.crash, task)
    engine.call_at(2.0, ready.succeed)
    engine.run()
    assert seen == [("crashed", 1.0)]
    assert task.done


def test_engine_wait_outside_a_task_raises():
    engine = SimulationEngine()
    with pytest.raises(RuntimeError, match="only a task can wait"):
        engine.settle()


def test_timed_future_has_its_result_at_its_time():
    engine = SimulationEngine()

    def work():
        later = TimedFuture(engine, 3.0, "value")
        assert not later.done()
        engine.pass_time(2)
        assert later.wait() == "value"
        assert engine.now == 3
        assert later.done()

    engine.spawn("worker", work)
    engine.run()
