"""Joint exchanges of the workers of one host: one payload and one answer for all of them.

Every worker writes its payload to shared memory (`host_group`). The first worker that sees the
payloads of all expected workers of the host becomes the *carrier* of a group: it adds the payloads
up in rank order, and sends the sum, with the commits of all members in one message. After the
round, one worker fetches the answer, and the others read it from shared memory.

The servers count every commit at most once, so groups may have any size, and a worker may always
exchange for itself. Failures are handled as follows:

* If the carrier dies before it has recorded in shared memory that its commit begins, nothing that
  it has sent counts, and another worker becomes the carrier of those that are alive.
* After that, each server counts all members of the group or none. If a worker finds that a server
  has not counted it, and may never receive or accept the group's commit, it sends its payload to
  that server by itself. Servers ignore duplicates.
"""

import logging
from collections.abc import Callable, Sequence

from ..base import ModelSink
from ..host_group import HostGroup, HostMemoryPlan, table_type
from . import wire
from .host_download import HostDownload
from .host_member import HostMember
from .host_upload import HostUpload
from .layout import WEIGHTS, Layout
from .specification import Specification
from .store import Store
from .transfer import Transfer

log = logging.getLogger(__name__)


class HostExchange:
    """One worker's part in the joint exchanges of its host.

    Args:
        group: the memory that the workers of the host share.
        store: connection to the servers.
        specification: of the exchange.
        layout: how the model is cut into buckets.
        transfer: of vectors, to and from the servers.
        beat: sends the servers a heartbeat if one is due.

    Attributes:
        upload: of this worker's payloads.
        waited: seconds that this worker's newest payload has waited for the others of its host.
    """

    def __init__(
        self,
        group: HostGroup,
        store: Store,
        specification: Specification,
        layout: Layout,
        transfer: Transfer,
        beat: Callable[[], None],
    ) -> None:
        self._group, self._specification, self._layout, self._transfer = group, specification, layout, transfer
        self._member = HostMember(group, store.nonce, tuple(layout.sizes))
        self.upload = HostUpload(self._member, store, specification, layout, transfer)
        self._download = HostDownload(self._member, store, transfer, beat)
        self.waited = 0.0

    def join(self, replacement: bool) -> bool:
        """Join the host's group.

        Args:
            replacement: whether the job is running already. Otherwise all workers are in round 1.

        Returns:
            Whether the worker has joined; see `HostGroup.join`.
        """
        group, layout = self._group, self._layout
        shared = self._transfer.shared_elements
        answers = [0] * layout.servers
        for bucket in layout.buckets:
            answers[bucket.shard] += wire.HEADER_ELEMENTS + bucket.stop - bucket.start
        plan = HostMemoryPlan(
            contributions={name: shared(size) for name, size in layout.sizes.items()},
            residual=layout.sizes[WEIGHTS] if self.upload.encoder is not None else 0,
            answers=[shared(elements) for elements in answers],
            table=table_type(len(group.ranks), layout.servers, wire.message_type(self._specification.scalars)),
        )
        if not group.join(plan):
            log.warning("worker %d exchanges by itself: its place among the workers of this host is taken", group.rank)
            return False
        self._member.enter(0 if replacement else 1)
        return True

    def ready(self, round_: int) -> None:
        """Announce the earliest round that this worker may take part in next."""
        self._member.set_next_round(round_)

    def abstain(self) -> None:
        """Announce that the host need not wait for this worker in the next rounds."""
        self.upload.contribution, self.waited = None, 0.0
        self._member.set_next_round(0)

    def leave(self) -> None:
        """See `HostGroup.leave`."""
        self._group.leave()

    def fetch(self, names: Sequence[str], model: ModelSink, forms: Sequence[int]) -> set[int]:
        """Write the answer to the model; see `HostDownload.fetch`."""
        contribution, self.waited = self.upload.finish()
        if contribution is None:
            return set(range(self._layout.servers))
        return self._download.fetch(contribution.round, names, model, forms)
