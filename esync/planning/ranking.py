"""Simulate the candidates, rank them within their classes, and recommend one."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from .. import config
from ..algorithms import ALGORITHMS
from ..algorithms.registry import suffix_of
from ..launch.description import Description, StateServerEntry, errors_of, read
from ..launch.simulation_schema import NetworkSection
from ..runtime.errors import ExpectedError
from ..samples import UNKNOWN, Training
from ..simulate.cluster import model
from ..simulate.parallel import Failed, outcomes, pool
from .candidates import Candidate, PlanClass, candidates, excluded, twins, unsuited
from .forecast import Forecast, Task, forecast, prepared, speeds_of
from .what_if import Change, WhatIfError, changed

#: Called with the number of simulated candidates, and of all.
Progress = Callable[[int, int], None]


class PlanError(ExpectedError):
    """Raised when there is nothing to recommend; the message says why."""


@dataclass(frozen=True)
class Ranking:
    """The ranked candidates on one cluster.

    Attributes:
        classes: class → its forecasts, the best one first, then by speed, for classes that have any.
        failed: candidates that could not be simulated, and why.
        recommended: the recommended one.
        limit: samples per second that all devices would compute without exchanges.
    """

    classes: Mapping[PlanClass, Sequence[Forecast]]
    failed: Sequence[tuple[Candidate, str]]
    recommended: Forecast
    limit: float

    @property
    def every(self) -> list[Forecast]:
        """The forecasts of all classes."""
        return [forecast for forecasts in self.classes.values() for forecast in forecasts]

    def best(self, plan_class: PlanClass) -> Forecast | None:
        """Return the best of a class; None if it has none."""
        return next(iter(self.classes.get(plan_class, ())), None)


@dataclass(frozen=True)
class WhatIf:
    """The effect of a change to the cluster.

    Attributes:
        text: the changes, as the user has written them.
        ranking: the ranking on the changed cluster.
        gain: useful samples/s of the best candidate of the recommended class, relative to those
            without the change; None if the class has no candidate there.
    """

    text: str
    ranking: Ranking
    gain: float | None


@dataclass(frozen=True)
class Plan:
    """The result of planning.

    Attributes:
        description: the cluster.
        ranking: its candidates.
        what_ifs: the requested changes, by gain.
        excluded: modes that cannot be simulated without gradients, and why.
        twins: mode that takes as long as another one → that one, which represents it.
        notes: further remarks for the user.
        program: command of the user's program, if it is not in the description.
        shares: share of each worker in the speed of all devices.
        training: what is known of the program's need of samples.
    """

    description: Description
    ranking: Ranking
    what_ifs: Sequence[WhatIf]
    excluded: Mapping[str, str]
    twins: Mapping[str, str]
    notes: Sequence[str]
    program: Sequence[str] = ()
    shares: Sequence[float] = ()
    training: Training = UNKNOWN


def plan(
    path: Path,
    *,
    modes: Sequence[str] = (),
    what_ifs: Sequence[str] = (),
    at_a_time: int | None = None,
    progress: Progress = lambda done, of: None,
    training: Training = UNKNOWN,
) -> Plan:
    """Predict how fast each mode would be on a cluster, and recommend one.

    Args:
        path: description of the cluster, with the times of its devices, network and servers.
        modes: names of the modes to try; empty: all of them.
        what_ifs: changes to try, in the syntax of `--what-if`.
        at_a_time: number of simulations at a time; None: the number of cores.
        progress: called after each simulation.
        training: what is known of the program's need of samples.

    Raises:
        DescriptionError: the description cannot be read, or lacks the time of a device.
        WhatIfError: a change makes no sense for this cluster.
        PlanError: no candidate could be simulated.
    """
    described = read(path)
    description, left_out = prepared(described)
    notes = [f"train.{name}: it is not modelled, and left out here" for name in left_out]
    if description.state_server is None:
        entry = StateServerEntry(host=description.scheduler.host)
        description = description.model_copy(update={"state_server": entry})
        notes.append(f"there is no section state_server, which mode esync needs: one on {entry.host} is assumed here")
    notes += _notes_on_data(described)
    changes = [Change.parse(text) for text in what_ifs]
    clusters = [description, *(changed(description, change) for change in changes)]
    notes += _network_notes(changes, clusters)
    without = unsuited(training.optimizer)
    modes = [mode for mode in modes or ALGORITHMS if mode not in without]
    tasks = [_tasks(description, path, modes)]
    for change, cluster in zip(changes, clusters[1:], strict=True):
        tasks.append(_tasks(cluster, path, modes, change.per_host))
        if not tasks[-1]:
            raise WhatIfError(
                f"--what-if {change.text}: exchanges per host are predicted for rounds over parameter servers, "
                f"and none of the modes that are tried has any: {', '.join(modes)}"
            )
    tasks = [[replace(task, training=training) for task in part] for part in tasks]
    total = sum(map(len, tasks))
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    not_simulated = {**excluded(modes), **without}
    with pool(at_a_time, total, modes) as executor:
        rankings = _ranked(executor, tasks, not_simulated, report)
    base = rankings[0]
    answers = [_what_if(change.text, ranking, base) for change, ranking in zip(changes, rankings[1:], strict=True)]
    answers.sort(key=lambda change: -(change.gain or 0.0))
    if any(option.candidate.collective for ranking in rankings for option in ranking.every):
        notes.append(
            "--collective: what MPI costs the workers' processors is not measured; one is recommended only where it is "
            f"predicted to be more than {config.PLAN_COLLECTIVE:g} times as fast as all others of its class"
        )
    speeds = speeds_of(description, path)
    shares = [speed / sum(speeds) for speed in speeds]
    return Plan(described, base, answers, not_simulated, twins(modes), notes, shares=shares, training=training)


def _notes_on_data(description: Description) -> list[str]:
    """Return a remark for workers whose data are known to differ: what that costs is not modelled."""
    train = description.train
    partition = "class" if train.get("split_by_class") else str(train.get("partition") or config.PARTITION)
    if train.get("preset") == "skewed-data":
        reason = "preset skewed-data"
    elif suffix_of(partition):
        reason = f"partition {partition}"
    else:
        return []
    return [
        f"train: {reason}: what it costs that workers have different data is not modelled; if data stay where they "
        "are, --preset skewed-data is the choice, whatever is recommended here"
    ]


def _network_notes(changes: Sequence[Change], clusters: Sequence[Description]) -> list[str]:
    """Return remarks for clusters whose network has no bandwidth and latency.

    Args:
        changes: the requested changes.
        clusters: the described cluster, and that of each change.
    """
    notes = [
        f"--what-if {change.text}: everything runs on {cluster.scheduler.host}, and there is no network to change"
        for change, cluster in zip(changes, clusters[1:], strict=True)
        if change.is_of_network and len(cluster.host_names()) == 1
    ]
    if any(len(cluster.host_names()) > 1 and cluster.network == NetworkSection() for cluster in clusters):
        notes.append(
            "no network is measured or described, so messages between hosts take no time here; to limit them, plan "
            "with --no-measure and for instance network: {bandwidth: 1Gbit, latency: 0.2ms}"
        )
    return notes


def _tasks(description: Description, path: Path, modes: Sequence[str], per_host: bool | None = None) -> list[Task]:
    """Return the candidates to simulate on one cluster; see `candidates`."""
    limit = sum(speeds_of(description, path))  # without exchanges
    with errors_of(path):
        cluster = model(description, path.parent)
    return [
        Task(candidate, description, path, limit) for candidate in candidates(description, cluster, modes, per_host)
    ]


def _ranked(
    executor: Executor, tasks: Sequence[Sequence[Task]], unusable: Mapping[str, str], report: Callable[[], None]
) -> list[Ranking]:
    """Simulate the candidates of several clusters, and return a ranking for each of them."""
    all_tasks = [task for part in tasks for task in part]
    results = outcomes(executor, forecast, all_tasks)
    rankings = []
    for part in tasks:
        forecasts, failed = list[Forecast](), list[tuple[Candidate, str]]()
        for task in part:
            outcome = next(results)
            report()
            if isinstance(outcome, Failed):
                failed.append((task.candidate, outcome.reason))
            else:
                forecasts.append(outcome)
        if not forecasts:
            reasons = [*(reason for _, reason in failed), *(f"{mode}: {reason}" for mode, reason in unusable.items())]
            raise PlanError(f"nothing could be simulated: {'; '.join(dict.fromkeys(reasons))}")
        rankings.append(rank(forecasts, failed, part[0].limit))
    return rankings


def rank(forecasts: Sequence[Forecast], failed: Sequence[tuple[Candidate, str]], limit: float) -> Ranking:
    """Return the forecasts by class and useful samples/s, and the recommended one.

    A candidate on a group of devices is kept only if it is faster than the same method on all
    devices, and only the best one: one in the class of fast devices, otherwise one per method.
    """
    complete = {forecast.candidate.settings: forecast for forecast in forecasts if forecast.candidate.ranks is None}
    groups: dict[object, Forecast] = {}
    for prediction in forecasts:
        on_all = complete.get(prediction.candidate.settings)
        if prediction.candidate.ranks is None or on_all is None or prediction.useful <= on_all.useful:
            continue
        key = prediction.plan_class if prediction.plan_class is PlanClass.FAST else prediction.candidate.settings
        if key not in groups or prediction.useful > groups[key].useful:
            groups[key] = prediction
    best = set(map(id, groups.values()))
    useful = [
        forecast
        for forecast in forecasts
        if forecast.candidate.ranks is None or id(forecast) in best or forecast.candidate.settings not in complete
    ]
    classes = {
        plan_class: _in_order(members)
        for plan_class in PlanClass
        if (members := [forecast for forecast in useful if forecast.plan_class is plan_class])
    }
    return Ranking(classes, failed, recommended(classes), limit)


def _in_order(forecasts: Sequence[Forecast]) -> list[Forecast]:
    """Sort forecasts by useful samples/s, except that a preset or the simplest of nearly equal ones leads.

    A collective leads only if it is predicted to be more than `config.PLAN_COLLECTIVE` times as fast
    as every other candidate, because MPI's load on the workers' processors is not measured.
    """
    ordered = sorted(forecasts, key=lambda forecast: -forecast.useful)
    leaders = [forecast for forecast in ordered if not forecast.candidate.collective]
    if not leaders or ordered[0].useful > config.PLAN_COLLECTIVE * leaders[0].useful:
        leaders = ordered

    def is_near(leader: Forecast) -> bool:
        margin = config.PLAN_PRESET if leader.candidate.preset else config.PLAN_EQUAL
        return leader.useful >= (1 - margin) * leaders[0].useful

    best = min(filter(is_near, leaders), key=lambda forecast: forecast.candidate.demands)  # the first of equals
    return [best, *(forecast for forecast in ordered if forecast is not best)]


def recommended(classes: Mapping[PlanClass, Sequence[Forecast]]) -> Forecast:
    """Return the best forecast of the class that deviates least from SGD, unless another gains much.

    A later class is preferred to an earlier one if its best gains more than `config.PLAN_GAIN`.
    """
    chosen, *others = (members[0] for members in classes.values())
    for best in others:
        if best.useful > (1 + config.PLAN_GAIN) * chosen.useful:
            chosen = best
    return chosen


def _what_if(text: str, ranking: Ranking, base: Ranking) -> WhatIf:
    best = ranking.best(base.recommended.plan_class)
    return WhatIf(text, ranking, best.useful / base.recommended.useful if best is not None else None)
