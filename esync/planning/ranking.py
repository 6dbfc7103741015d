"""The plan: candidates simulated, ranked within their classes, and one of them recommended."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from .. import config
from ..launch.description import Description, DescriptionError, StateServerEntry, read
from ..launch.simulation_schema import NetworkSection
from ..runtime.errors import ExpectedError
from ..simulate.cluster import model
from ..simulate.parallel import Failed, outcomes, pool
from .candidates import Candidate, PlanClass, candidates, excluded, twins
from .forecast import Forecast, Task, forecast, limit_of, prepared, speeds_of
from .what_if import Change, WhatIfError, changed

#: Called with the number of candidates that are done, and of all.
Progress = Callable[[int, int], None]


class PlanError(ExpectedError):
    """Raised when there is nothing to recommend; the message says why."""


@dataclass(frozen=True)
class Ranking:
    """The candidates on one cluster.

    Attributes:
        classes: class → its forecasts, the best one first, then by speed; classes without any are
            left out.
        failed: candidates that could not be simulated, and why.
        recommended: what is recommended.
        limit: samples per second that all devices would compute without exchanges.
    """

    classes: Mapping[PlanClass, Sequence[Forecast]]
    failed: Sequence[tuple[Candidate, str]]
    recommended: Forecast
    limit: float

    @property
    def every(self) -> list[Forecast]:
        """The forecasts of all classes."""
        return [each for forecasts in self.classes.values() for each in forecasts]

    def best(self, plan_class: PlanClass) -> Forecast | None:
        """Return the best of a class; None if it has none."""
        return next(iter(self.classes.get(plan_class, ())), None)


@dataclass(frozen=True)
class WhatIf:
    """What becomes of the recommendation on a changed cluster.

    Attributes:
        text: the changes, as they were asked for.
        ranking: of the changed cluster.
        gain: useful samples/s of the best of the recommended class, divided by what they are
            without the change; None if the class has no candidate there.
    """

    text: str
    ranking: Ranking
    gain: float | None


@dataclass(frozen=True)
class Plan:
    """What a plan found out.

    Attributes:
        description: the cluster, as described.
        ranking: its candidates.
        what_ifs: the changes that were asked about, by gain.
        excluded: modes that cannot be simulated without gradients, and why.
        twins: modes that take as long as another one → that one, which stands for them.
        notes: what the user should know of it beside.
        program: words of the user's program, where the description does not name it.
        shares: share of the devices' speed that each worker has, in their order.
    """

    description: Description
    ranking: Ranking
    what_ifs: Sequence[WhatIf]
    excluded: Mapping[str, str]
    twins: Mapping[str, str]
    notes: Sequence[str]
    program: Sequence[str] = ()
    shares: Sequence[float] = ()


def plan(
    path: Path,
    *,
    modes: Sequence[str] = (),
    what_ifs: Sequence[str] = (),
    at_a_time: int | None = None,
    progress: Progress = lambda done, of: None,
) -> Plan:
    """Predict how fast each mode would be on a cluster, and recommend one.

    Args:
        path: description of the cluster, with the times of its devices, network and servers.
        modes: names of the modes to try; empty: all of them.
        what_ifs: changes to try, each as `--what-if` takes it.
        at_a_time: number of simulations at a time; None: as many as there are cores.
        progress: told how far it is.

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
    changes = [Change.parse(text) for text in what_ifs]
    clusters = [description, *(changed(description, change) for change in changes)]
    notes += _network_notes(changes, clusters)
    tasks = [_tasks(description, path, modes)]
    for change, cluster in zip(changes, clusters[1:], strict=True):
        tasks.append(_tasks(cluster, path, modes, change.per_host))
        if not tasks[-1]:
            raise WhatIfError(
                f"--what-if {change.text}: exchanges per host are predicted for rounds over parameter servers, "
                f"and none of the modes that are tried has any: {', '.join(modes)}"
            )
    total = sum(map(len, tasks))
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    with pool(at_a_time, total, modes) as executor:
        rankings = _ranked(executor, tasks, excluded(modes), report)
    base = rankings[0]
    asked = [_what_if(change.text, each, base) for change, each in zip(changes, rankings[1:], strict=True)]
    asked.sort(key=lambda each: -(each.gain or 0.0))
    if any(each.candidate.collective for ranking in rankings for each in ranking.every):
        notes.append(
            "--collective: what MPI costs the workers' processors is not measured; one is recommended only where it is "
            f"predicted to be more than {config.PLAN_COLLECTIVE:g} times as fast as all others of its class"
        )
    speeds = speeds_of(description, path)
    shares = [speed / sum(speeds) for speed in speeds]
    return Plan(described, base, asked, excluded(modes), twins(modes), notes, shares=shares)


def _network_notes(changes: Sequence[Change], clusters: Sequence[Description]) -> list[str]:
    """Return what the user should know where the network costs nothing.

    Args:
        changes: the changes that were asked about.
        clusters: the described cluster, and that of each change.
    """
    notes = [
        f"--what-if {change.text}: everything runs on {cluster.scheduler.host}, and there is no network to change"
        for change, cluster in zip(changes, clusters[1:], strict=True)
        if change.is_of_network and len(cluster.host_names()) == 1
    ]
    if any(len(each.host_names()) > 1 and each.network == NetworkSection() for each in clusters):
        notes.append(
            "there is no section network, so messages between hosts take no time here; to limit them, write for "
            "instance network: {bandwidth: 1Gbit, latency: 0.2ms}"
        )
    return notes


def _tasks(description: Description, path: Path, modes: Sequence[str], per_host: bool | None = None) -> list[Task]:
    """Return what is to be simulated on one cluster; see `candidates`."""
    limit = limit_of(description, path)
    try:
        cluster = model(description, path.parent)
    except DescriptionError as error:
        raise DescriptionError(f"{path}: {error}") from None
    return [
        Task(candidate, description, path, limit) for candidate in candidates(description, cluster, modes, per_host)
    ]


def _ranked(
    executor: Executor, tasks: Sequence[Sequence[Task]], unusable: Mapping[str, str], report: Callable[[], None]
) -> list[Ranking]:
    """Simulate the candidates of several clusters, and return a ranking for each of them."""
    every = [task for part in tasks for task in part]
    found = outcomes(executor, forecast, every)
    rankings = []
    for part in tasks:
        forecasts, failed = list[Forecast](), list[tuple[Candidate, str]]()
        for task in part:
            outcome = next(found)
            report()
            if isinstance(outcome, Failed):
                failed.append((task.candidate, outcome.reason))
            else:
                forecasts.append(outcome)
        if not forecasts:
            reasons = [*(reason for _, reason in failed), *(f"{mode}: {why}" for mode, why in unusable.items())]
            raise PlanError(f"nothing could be simulated: {'; '.join(dict.fromkeys(reasons))}")
        rankings.append(rank(forecasts, failed, part[0].limit))
    return rankings


def rank(forecasts: Sequence[Forecast], failed: Sequence[tuple[Candidate, str]], limit: float) -> Ranking:
    """Return the forecasts by class and useful samples/s, and what is recommended.

    Doing without slower devices makes sense only where that gains, compared with the same method on
    all of them. Of such groups the best is kept: one of all methods in the class of fast devices,
    one of each method elsewhere.
    """
    whole = {each.candidate.settings: each for each in forecasts if each.candidate.ranks is None}
    groups: dict[object, Forecast] = {}
    for each in forecasts:
        on_all = whole.get(each.candidate.settings)
        if each.candidate.ranks is None or on_all is None or each.useful <= on_all.useful:
            continue
        key = each.plan_class if each.plan_class is PlanClass.FAST else each.candidate.settings
        if key not in groups or each.useful > groups[key].useful:
            groups[key] = each
    best = set(map(id, groups.values()))
    kept = [
        each
        for each in forecasts
        if each.candidate.ranks is None or id(each) in best or each.candidate.settings not in whole
    ]
    classes = {
        plan_class: _in_order([each for each in kept if each.plan_class is plan_class]) for plan_class in PlanClass
    }
    classes = {plan_class: members for plan_class, members in classes.items() if members}
    return Ranking(classes, failed, recommended(classes), limit)


def _in_order(forecasts: Sequence[Forecast]) -> list[Forecast]:
    """Return forecasts, the most useful first; of those that are nearly so, the simplest leads.

    A collective leads only where it is predicted to be more than `config.PLAN_COLLECTIVE` times as
    fast as everything else: what MPI costs the workers' processors is not measured.
    """
    ordered = sorted(forecasts, key=lambda each: -each.useful)
    leaders = [each for each in ordered if not each.candidate.collective]
    if not leaders or ordered[0].useful > config.PLAN_COLLECTIVE * leaders[0].useful:
        leaders = ordered
    near = [leader for leader in leaders if leader.useful >= (1 - config.PLAN_EQUAL) * leaders[0].useful]
    best = min(near, key=lambda each: each.candidate.demands, default=None)  # the first of equal ones
    return ([best] if best is not None else []) + [each for each in ordered if each is not best]


def recommended(classes: Mapping[PlanClass, Sequence[Forecast]]) -> Forecast:
    """Return the best of the class that deviates least from SGD, unless a later one gains much.

    A class takes the place of the one before if its best gains more than `config.PLAN_GAIN`.
    """
    chosen: Forecast | None = None
    for plan_class in PlanClass:
        best = next(iter(classes.get(plan_class, ())), None)
        if best is not None and (chosen is None or best.useful > (1 + config.PLAN_GAIN) * chosen.useful):
            chosen = best
    if chosen is None:
        raise PlanError("no mode is left to recommend")
    return chosen


def _what_if(text: str, ranking: Ranking, base: Ranking) -> WhatIf:
    best = ranking.best(base.recommended.plan_class)
    return WhatIf(text, ranking, best.useful / base.recommended.useful if best is not None else None)
