"""What a worker script of the cluster tests does, as JSON on its command line."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any


class WorkerPlan:
    """Base class of the scripts' plans, which are data classes."""

    def arguments(self) -> list[str]:
        """The command line of the plan's script."""
        return ["-m", type(self).__module__, json.dumps(asdict(self))]  # type: ignore[call-overload]


def run(main: Callable[[Any], None], plan: Callable[..., WorkerPlan]) -> None:
    """Do what the command line says."""
    main(plan(**json.loads(sys.argv[1])))
