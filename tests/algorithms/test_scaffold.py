"""SCAFFOLD against Algorithm 1 in NumPy, over simulated exchanges."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

import esync
from esync.algorithms import SCAFFOLD, Algorithm, LocalSGD, ModelView, find
from esync.algorithms.scaffold import CONTROL
from esync.arguments import read
from esync.exchange import Exchange, Specification
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.round_state import Limits
from esync.runtime.mxnet_import import mx
from esync.runtime.straggler_injection import Straggler
from esync.simulate.cluster_state import ClusterState
from esync.simulate.collective import SharedCollectiveState, SimulatedCollective
from esync.simulate.engine import SimulationEngine
from esync.simulate.network import Link, Network
from esync.simulate.servers import ServerModel, ServerNode
from esync.simulate.store import VirtualStore

from ..support.memory_world import MemoryWorld
from ..support.small_net import BATCH, amp_backward, backward, differentiate, make_net, scaled, single_weight
from .test_hooks import make_trainer

SIZE = 5
RNG = np.random.default_rng(3)
#: Worker i minimizes Σ a·(w − t)²/2; curvatures and optima differ.
CURVATURES = RNG.uniform(0.2, 2.0, (3, SIZE)).astype(np.float32)
OPTIMA = RNG.normal(0.0, 3.0, (3, SIZE)).astype(np.float32)
TOLERANCE: dict[str, Any] = {"rtol": 2e-4, "atol": 2e-5}


def gradient(rank: int, weights: np.ndarray, weight_decay: float = 0.0) -> np.ndarray:
    result: np.ndarray = CURVATURES[rank] * (weights - OPTIMA[rank]) + weight_decay * weights
    return result


@dataclass
class Cluster:
    """Three workers that minimize their own losses.

    It records what they had at the end of each of their rounds.
    """

    way: str = "ps"
    settings: dict[str, Any] = field(default_factory=lambda: {"learning_rate": 0.1})
    scale: float = 1.0

    def __post_init__(self) -> None:
        self.engine = SimulationEngine()
        hosts = [f"host-{rank}" for rank in range(3)]
        self.network = Network(self.engine, lambda host: Link(1e8, 1e-4), ["server", *hosts])
        nodes = [ServerNode(self.engine, ServerModel("server"), shard) for shard in range(2)]
        self.servers = ClusterState(self.engine, self.network, nodes, 3, bucket_elements=2)
        if self.way != "ps":
            self.collective = SharedCollectiveState(self.engine, self.network, hosts, self.way)
        #: rank → for each round the weights, c, c_i (of algorithms that have them), and the
        #: members.
        self.rounds: dict[int, list[tuple[np.ndarray, ...]]] = {rank: [] for rank in range(3)}
        self.members: dict[int, list[int]] = {rank: [] for rank in range(3)}
        self.replacements: list[tuple[np.ndarray, np.ndarray]] = []  # c_i and c that each has begun with

    def exchange(self, specification: Specification, rank: int) -> Exchange:
        if self.way != "ps":
            return SimulatedCollective(specification, self.collective, rank, Straggler((), lambda: self.engine.now))
        return ParameterServerExchange(specification, VirtualStore(self.servers, f"host-{rank}", rank, object()))

    def live(self, rank: int, algorithm: Algorithm, rounds: int, mine: int) -> Any:
        """Train until the run is over, or this worker is through with its own rounds."""
        weight = single_weight(size=SIZE)
        settings = {name: make() if callable(make) else make for name, make in self.settings.items()}
        trainer = esync.Trainer(
            [weight], "sgd", settings, algorithm=algorithm, limits=Limits(rounds=rounds),
            world=MemoryWorld(lambda asked: self.exchange(asked, rank)), gradient_scale=self.scale,
        )  # fmt: skip
        trainer.start()
        assert trainer.algorithm.result is not None
        if trainer.replacement and isinstance(algorithm, SCAFFOLD):
            common = trainer.replica.further[CONTROL].values
            self.replacements.append((algorithm.control.copy(), common.copy()))
        while not trainer.finished and len(self.rounds[rank]) < mine:
            differentiate(
                lambda: (
                    (mx.nd.array(CURVATURES[rank]) * (weight.data() - mx.nd.array(OPTIMA[rank])).square()).sum() / 2 * 4
                )
            )
            trainer.step(4)
            self.engine.pass_time(0.01)
            if trainer.exchanged:
                control = getattr(algorithm, "control", np.zeros(0))
                common = trainer.replica.further[CONTROL].values if CONTROL in trainer.replica.further else control
                self.rounds[rank].append((weight.data().asnumpy(), common.copy(), control.copy()))
                self.members[rank].append(len(trainer.algorithm.result.members))
        return trainer

    def train(self, algorithms: Sequence[Algorithm], rounds: int, mine: dict[int, int] | None = None) -> None:
        """`mine`: rank → rounds after which it says goodbye, before the end of the run."""

        def live(rank: int) -> None:
            self.live(rank, algorithms[rank], rounds, (mine or {}).get(rank, rounds)).close()

        for rank in range(3):
            self.engine.spawn(f"worker {rank}", lambda rank=rank: live(rank))
        self.engine.run()


class Reference:
    """Algorithm 1, option II."""

    def __init__(self, global_rate: float = 1.0, weight_decay: float = 0.0) -> None:
        self.global_rate, self.weight_decay = global_rate, weight_decay
        self.x, self.c = np.ones(SIZE), np.zeros(SIZE)
        self.own = np.zeros((3, SIZE))

    def round(self, rates: dict[int, Sequence[float]], believed_complete: bool = False) -> None:
        """Compute a round.

        `rates` has each participant's learning rates, one per local step. With `believed_complete`
        the participants take all workers for present.
        """
        updates, changes = [], []
        for rank, worker_rates in rates.items():
            y = self.x.copy()
            for rate in worker_rates:
                y -= rate * (gradient(rank, y, self.weight_decay) - self.own[rank] + self.c)
            fresh = self.own[rank] - self.c + (self.x - y) / sum(worker_rates)
            updates.append(y - self.x)
            changes.append(fresh - (self.c if believed_complete else self.own[rank]))
            self.own[rank] = fresh
        self.x = self.x + self.global_rate * np.mean(updates, 0)
        self.c = self.c + len(rates) / 3 * np.mean(changes, 0)

    def check(self, cluster: Cluster, number: int, ranks: Sequence[int] = range(3)) -> None:
        """Compare everything at the end of a round."""
        for rank in ranks:
            weights, common, control = cluster.rounds[rank][number]
            np.testing.assert_allclose(weights, self.x, **TOLERANCE)
            np.testing.assert_allclose(common, self.c, **TOLERANCE)
            np.testing.assert_allclose(control, self.own[rank], **TOLERANCE)


# --- Algorithm 1 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "scale", "weight_decay"), [("ps", 1.0, 0.0), ("ps", 4.0, 0.3), ("ring", 4.0, 0.0)])
def test_scaffold_round_equals_algorithm_1(way: str, scale: float, weight_decay: float) -> None:
    """Holds for any number of local iterations per worker and any gradient scale."""
    cluster = Cluster(way, {"learning_rate": 0.1 / scale, "wd": weight_decay}, scale)
    counts = {0: 3, 1: 1, 2: 5}
    cluster.train([SCAFFOLD(local_iterations=count, global_lr=0.8) for count in counts.values()], 4)
    reference = Reference(0.8, weight_decay)
    for number in range(4):
        reference.round({rank: [0.1] * count for rank, count in counts.items()})
        reference.check(cluster, number)
        np.testing.assert_allclose(reference.c, reference.own.mean(0), rtol=1e-9)


def test_scaffold_with_lr_schedule_uses_the_rates_of_the_steps() -> None:
    cluster = Cluster(settings={"lr_scheduler": lambda: mx.lr_scheduler.FactorScheduler(2, 0.5), "learning_rate": 0.2})
    cluster.train([SCAFFOLD(local_iterations=3) for _ in range(3)], 2)
    reference = Reference()
    rates = [0.2, 0.2, 0.1, 0.1, 0.05, 0.05]
    for number in range(2):
        reference.round(dict.fromkeys(range(3), rates[3 * number : 3 * number + 3]))
        reference.check(cluster, number)


# --- who is missing, and who comes anew -----------------------------------------------------------


def test_scaffold_keeps_the_control_variate_share_of_a_worker_that_left() -> None:
    cluster = Cluster()
    cluster.train([SCAFFOLD(local_iterations=2) for _ in range(3)], 6, {2: 2})
    reference = Reference()
    for _ in range(2):
        reference.round(dict.fromkeys(range(3), (0.1, 0.1)))
    reference.check(cluster, 1)
    # The others have learnt of the end of round 2 before the goodbye came, and take everyone for
    # there once more: the one that is missing counts as if its control variate had been c.
    assert cluster.members[0] == cluster.members[1] == [3, 3, 2, 2, 2, 2]
    for number in range(2, 6):
        reference.round(dict.fromkeys(range(2), (0.1, 0.1)), believed_complete=number == 2)
        reference.check(cluster, number, range(2))
    assert len(cluster.rounds[2]) == 2


def test_scaffold_replacement_corrects_the_mean_control_variate_in_its_first_round() -> None:
    cluster = Cluster()

    def live(rank: int) -> None:
        cluster.live(rank, SCAFFOLD(local_iterations=3), 5, 2 if rank == 2 else 5)  # worker 2 dies without a goodbye
        if rank == 2:
            cluster.live(rank, SCAFFOLD(local_iterations=3), 5, 5)

    for rank in range(3):
        cluster.engine.spawn(f"worker {rank}", lambda rank=rank: live(rank))
    cluster.engine.run()
    ((control, common),) = cluster.replacements
    assert np.abs(common).max() > 0.1
    np.testing.assert_array_equal(control, common)
    assert np.abs(cluster.rounds[2][1][2] - common).max() > 0.1  # the dead worker's was another one
    for number in (0, 1, 2, 3, 4):
        controls = [cluster.rounds[rank][number][2] for rank in range(3)]
        np.testing.assert_allclose(cluster.rounds[0][number][1], np.mean(controls, 0), **TOLERANCE)


# --- on a real network ----------------------------------------------------------------------------


def test_scaffold_ignores_steps_skipped_after_overflow() -> None:
    net = make_net()
    trainer = make_trainer(net, SCAFFOLD(local_iterations=9))
    scaled(trainer)
    rates = []
    for loss in (1.0, 1e38, 1.0):
        amp_backward(net, trainer, 1, loss)
        trainer.step(BATCH)
        rates.append(trainer.algorithm.learning_rates)
    rate = trainer.learning_rate
    assert rates == pytest.approx([rate, rate, 2 * rate])


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "settings", "message"),
    [
        ("adam", {}, r"'scaffold' takes plain SGD steps on the workers, but the optimizer is 'Adam': use 'sgd', or"),
        (type("Own", (mx.optimizer.SGD,), {})(), None, "but the optimizer is 'Own': use 'sgd', or"),
        ("nag", {"momentum": 0.9}, "has no momentum"),
        ("sgd", {"momentum": 0.9}, "'scaffold' has no momentum"),
        ("sgd", {"clip_gradient": 1.0}, "leave clip_gradient out, or use 'local-sgd'"),
    ],
)
def test_scaffold_with_other_optimizer_is_refused(
    optimizer: Any, settings: dict[str, float] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        esync.Trainer(make_net().collect_params(), optimizer, settings, algorithm="scaffold")


def test_scaffold_with_lr_mult_is_refused() -> None:
    net = make_net()
    parameter = next(iter(net.collect_params().values()))
    parameter.lr_mult = 0.5
    with pytest.raises(ValueError, match=rf"for all parameters, but {parameter.name} has lr_mult"):
        esync.Trainer(net.collect_params(), "sgd", {}, algorithm="scaffold")


def test_scaffold_with_ignore_stale_grad_is_refused() -> None:
    net = make_net()
    trainer = make_trainer(net, SCAFFOLD(local_iterations=2))
    backward(net, 1)
    with pytest.raises(ValueError, match="moves parameters without a gradient"):
        trainer.step(BATCH, ignore_stale_grad=True)


@pytest.mark.parametrize("flag", ["--weighting=samples", "--overlap", "--run-ahead=2", "--momentum=0.9"])
def test_scaffold_with_unsupported_flag_is_refused(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    with pytest.raises(SystemExit):
        read("worker", "", ["-m", "scaffold", flag])
    assert f"{flag.partition('=')[0]} makes no sense with --mode scaffold" in capsys.readouterr().err


# --- further vectors, for any algorithm -----------------------------------------------------------


def test_algorithm_vectors_with_reserved_or_unknown_name_are_refused() -> None:
    class Wrong(LocalSGD):
        vectors: ClassVar = {"weights": "add_mean_update"}

    with pytest.raises(ValueError, match="vectors has 'weights'"):
        esync.algorithms.register("wrong-vectors")(Wrong)


@pytest.mark.parametrize("way", ["ps", "ring"])
def test_algorithm_with_own_vectors_exchanges_them(way: str) -> None:
    """An algorithm that sends gradients can have them, too. The common value is read-only."""

    class Counting(find("sync")):
        name, vectors = "counting", {"count": "add_mean_update", CONTROL: "mean"}

        def before_exchange(self, model: ModelView) -> None:
            model.contribution("count")[:] = 2.0
            for block in model.blocks():
                block.contribution(CONTROL)[:] = block.common("count") + 1
            with pytest.raises(ValueError, match="read-only"):
                model.common("count")[0] = 1

    cluster = Cluster(way)
    cluster.train([Counting() for _ in range(3)], 3)
    for number in range(3):
        # A learning rate of 0.1 multiplies the mean contribution; the mean is replaced.
        np.testing.assert_allclose(cluster.rounds[1][number][1], 1 + 0.2 * number, rtol=1e-6)
