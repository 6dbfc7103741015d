"""Write batches of the history to the database.

Duplicates, for instance after a restart, are ignored.
"""

import logging
from collections.abc import Sequence

from django.core.management import call_command
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from .. import config
from ..runtime.metric import ACCURACY
from .history_entries import HistoryEntry, RunRecord
from .models import Event, Round, Run

logger = logging.getLogger("esync.state_server")


def prepare() -> int:
    """Migrate the tables; return 0, the number of entries written."""
    call_command("migrate", verbosity=0, interactive=False)
    return 0


def disconnect() -> None:
    """Close this thread's connection; the next query opens a new one."""
    connection.close()


def write(items: Sequence[HistoryEntry]) -> int:
    """Write a batch in one transaction; return the number of written entries.

    Raises:
        OperationalError, InterfaceError: the database cannot be reached.
    """
    try:
        with transaction.atomic():
            _write(items)
    except (OperationalError, InterfaceError):
        raise
    except DatabaseError as error:
        logger.error("the database refuses %d entries of the history: %s", len(items), str(error).strip())
        return 0
    return len(items)


def _write(items: Sequence[HistoryEntry]) -> None:
    runs = _runs({item.info.key: item.info for item in items})
    rounds: dict[tuple[int, int, int], Round] = {}
    events: list[Event] = []
    metrics: dict[int, dict[str, str]] = {}
    logged: dict[int, dict[str, None]] = {}  # the names of each run, in their order
    for item in items:
        run = runs[item.info.key]
        if item.kind == "report":
            fields = dict(item.fields)
            metric = {name: fields.pop(name) for name in ("metric", "goal")}
            rounds[run, fields["rank"], fields["round"]] = Round(run_id=run, **fields)
            if metric["metric"] != ACCURACY:
                metrics[run] = metric
            logged.setdefault(run, {}).update(dict.fromkeys(fields["logged"]))
        elif item.kind == "event":
            events.append(Event(run_id=run, **item.fields))
        else:
            Run.objects.filter(pk=run, ended=None).update(**item.fields)
    Round.objects.bulk_create(
        rounds.values(),
        update_conflicts=True,  # a repeated report may contain the accuracy, which takes longer
        unique_fields=["run", "rank", "round"],
        update_fields=["accuracy", "accuracy_round", "parts"],
    )
    Event.objects.bulk_create(events)
    for run, metric in metrics.items():
        Run.objects.filter(pk=run).exclude(**metric).update(**metric)
    for row in Run.objects.filter(pk__in=[run for run, names in logged.items() if names]).only("logged"):
        if new := [name for name in logged[row.pk] if name not in row.logged]:
            row.logged += new
            row.save(update_fields=["logged"])


def _runs(infos: dict[str, RunRecord]) -> dict[str, int]:
    """Return the primary keys of the runs, which are created if they are new."""
    keys = dict(Run.objects.filter(key__in=infos).values_list("key", "pk"))
    new = [info for key, info in infos.items() if key not in keys]
    if new:
        Run.objects.bulk_create([Run(**vars(info)) for info in new])
        keys = dict(Run.objects.filter(key__in=infos).values_list("key", "pk"))
        _prune()
    return keys


def _prune() -> None:
    """Delete the oldest finished runs if there are too many."""
    old = Run.objects.exclude(ended=None).order_by("-started").values_list("pk", flat=True)[config.HISTORY_RUNS :]
    if pks := list(old):
        Run.objects.filter(pk__in=pks).delete()
