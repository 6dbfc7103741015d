"""Setting of a run, from the names of the published folders and the run's last step."""

import re
from dataclasses import dataclass, replace

from .rows import UnusableRunError

BSP, ASP = "BSP", "ASP"


@dataclass(frozen=True)
class Setup:
    """What the runs of one published folder have in common.

    Attributes:
        title: its name in reports.
        steps: total work in steps of ASP, each of which uses one worker's gradient.
        workers: number of workers.
    """

    title: str
    steps: int
    workers: int

    @property
    def overshoot(self) -> int:
        """Steps that ASP takes beyond its end, because gradients are still in transit then."""
        return 2 * (self.workers - 1)

    def share(self, order: str, last: int) -> float:
        """Return BSP's share of the work, given the last global step of a run with one switch."""
        if order == "10":
            switch = round((self.steps + self.overshoot - last) / (self.workers - 1), -1)
            return switch * self.workers / self.steps
        switch = (last - self.steps / self.workers) * self.workers / (self.workers - 1)
        return 1 - switch / self.steps


#: Published folder → the setup of its runs.
SETUPS = {
    "baseline": Setup("CIFAR-10, ResNet-32, 8 workers", 64_000, 8),
    "switch_exp": Setup("CIFAR-10, ResNet-32, 8 workers", 64_000, 8),
    "straggler": Setup("CIFAR-10, ResNet-32, 8 workers, stragglers", 64_000, 8),
    "cifar100_res50": Setup("CIFAR-100, ResNet-50, 8 workers", 128_000, 8),
    "cluster_16": Setup("CIFAR-10, ResNet-32, 16 workers", 64_000, 16),
}

#: Runs (folder, name) that cannot be compared with the others of their folder → the reason.
NOT_COMPARABLE = {
    ("baseline", "asp"): "a run of 23,400 steps, with another loss",
    ("baseline", "bsp"): "a run of 23,400 steps, with another loss",
    ("baseline", "bsp_1"): "made on machines half as fast",
}
#: Folders whose runs are not in any of the published figures → what they were for.
EXPERIMENTS = {
    "dynamic": "switched when the loss stagnated; dropped by the authors",
    "momentum_tunning": "tries what happens to the momentum at a switch",
}

#: Largest difference between the share that follows from the last step and the share in a name,
#: which is rounded: 12 stands for 12.5.
ROUNDED = 0.012

_STRAGGLERS = re.compile(
    r"(?P<policy>baseline|policy1|policy2)_freq(?P<times>\d+)_(?P<workers>\d+)str?aggler_(?P<delay>\d+)ms_run\d+"
)
POLICIES = {"baseline": "none", "policy1": "greedy", "policy2": "elastic"}


@dataclass(frozen=True)
class Setting:
    """What distinguishes groups of runs from one another.

    Attributes:
        order: the order of the segments, where 1 is BSP and 0 is ASP.
        share: share of the work that is done in BSP, 0 to 1.
        policy: policy against stragglers; "" if none were injected.
        scenario: the injected stragglers; "" if there are none.
        momentum: what becomes of the momentum at the switch to ASP; "" if it stays.
    """

    order: str
    share: float
    policy: str = ""
    scenario: str = ""
    momentum: str = ""

    @property
    def label(self) -> str:
        """Its name in tables."""
        segments = f"{self.policy} ({self.scenario})" if self.policy else self._segments
        return f"{segments}, momentum {self.momentum}" if self.momentum else segments

    @property
    def _segments(self) -> str:
        if self.order == "1":
            return BSP
        if self.order == "0":
            return ASP
        parts = {"1": f"B{100 * self.share:g}", "0": f"A{100 * (1 - self.share):g}"}
        if len(self.order) != 2:
            return f"{self.order} {parts['1']}"
        return "-".join(parts[segment] for segment in self.order)

    @property
    def place(self) -> tuple[str, int, float, str, str]:
        """Key for sorting: BSP, ASP, then ascending shares, then other orders and stragglers."""
        kind = {"1": 0, "0": 1, "10": 2, "01": 3}.get(self.order, 4)
        return self.scenario, kind if not self.policy else 5, self.share, self.policy, self.momentum


def published_setting(folder: str, name: str) -> Setting | None:
    """Return the setting that the name of a published run describes.

    Returns None for a name that does not follow a published pattern.
    """
    if folder == "straggler":
        match = _STRAGGLERS.fullmatch(name)
        if match is None:
            return None
        times = "once" if match["times"] == "1" else f"{match['times']} times"
        workers = "1 worker" if match["workers"] == "1" else f"{match['workers']} workers"
        return Setting("10", 0.05, POLICIES[match["policy"]], f"{workers} {times} {match['delay']} ms")
    if folder == "switch_exp" and (match := re.fullmatch(r"([ab])(\d+)[-_]([ab])(\d+)(?:[-_]run\d+)?", name)):
        first, share, second, other = match.groups()
        if first == second:
            return None
        order = "10" if first == "b" else "01"
        return Setting(order, int(share if first == "b" else other) / 100)
    if folder in ("baseline", "cifar100_res50") and (match := re.fullmatch(r"(asp|bsp)_\d+", name)):
        return Setting("1", 1.0) if match[1] == "bsp" else Setting("0", 0.0)
    if folder == "cifar100_res50" and (match := re.fullmatch(r"(\d+)_(\d+)_\d+", name)):
        return Setting("10", int(match[1]) / 100)
    if folder == "cluster_16" and (match := re.fullmatch(r"(bsp|5050)_run\d+", name)):
        return Setting("1", 1.0) if match[1] == "bsp" else Setting("10", 0.5)
    return None


def corrected(setting: Setting, setup: Setup, last: int) -> tuple[Setting, str]:
    """Return the setting according to the last step, and a remark if the name differs from it.

    Raises:
        UnusableRunError: no run of this setup can have that last step.
    """
    if len(setting.order) != 2:
        steps = setup.steps if setting.order == "0" else setup.steps // setup.workers
        if abs(last - steps) > max(setup.overshoot, 0.05 * steps):
            raise UnusableRunError(f"it ended at step {last}, where {setting.label} ends at {steps}")
        return setting, ""
    if setting.policy:  # these ran 5 %; their names tell no share
        return setting, ""
    share = setup.share(setting.order, last)
    if not -ROUNDED < share < 1 + ROUNDED:
        raise UnusableRunError(f"it ended at step {last}, which fits no share of BSP")
    exact = replace(setting, share=round(share, 4))
    if abs(share - setting.share) <= ROUNDED:
        return exact, ""
    return exact, f"its name says {setting.label}, its last step {last} says {exact.label}; counted as the latter"
