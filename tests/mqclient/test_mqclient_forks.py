"""Processes that were forked while a client was open, as worker pools do: the client's thread is not copied."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from understudy.mqclient.api import PortalClosedError
from understudy.mqclient.blocking import Producer, open_producer
from understudy.mqclient.message import message
from understudy.runtime import portal
from understudy.testkit.blocking import local_cluster

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*use of fork:DeprecationWarning")


def in_a_fork(work: Callable[[], object]) -> str:
    """Return what *work* returns in a forked process, ``hangs`` when it does not end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)  # ends it where it hangs
        try:
            os.write(writer, str(work()).encode())
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    told = os.read(reader, 1_000).decode()
    os.close(reader)
    return "hangs" if os.WIFSIGNALED(status) else told


def refused(producer: Producer) -> str:
    with pytest.raises(PortalClosedError) as caught:
        producer.send(message("Forks", b"x"))
    return str(caught.value)


def threads_of_portals() -> int:
    return sum(each.name == "understudy-portal" for each in threading.enumerate())


def test_a_forked_process_opens_clients_of_its_own() -> None:
    with local_cluster() as cluster:
        names = cluster.namesrv_address

        def own_client() -> str:
            with open_producer(names, "child") as producer:
                return producer.send(message("Forks", b"child")).status.name

        # Given a process with an open client
        with open_producer(names, "parent") as parent:
            # When it is forked, then its client says that it is of the other process, and new ones work
            assert in_a_fork(lambda: refused(parent)) == (
                "the client was opened before this process was forked; open one in this process"
            )
            assert in_a_fork(own_client) == "OK"
            assert in_a_fork(lambda: [own_client(), own_client()]) == "['OK', 'OK']"
            assert in_a_fork(lambda: (own_client(), threads_of_portals())) == "('OK', 0)"
            with portal._shared_lock:  # as another thread may, that opens or leaves a client
                assert in_a_fork(own_client) == "OK"
            # And the first one goes on
            assert parent.send(message("Forks", b"parent")).status.name == "OK"


def test_a_block_that_was_entered_before_a_fork_can_be_left_after_it() -> None:
    with local_cluster() as cluster, ExitStack() as blocks:
        other = blocks.enter_context(open_producer(cluster.namesrv_address, "other"))

        def leave() -> tuple[str, int]:
            blocks.close()
            with open_producer(cluster.namesrv_address, "child") as own:
                sent = own.send(message("Forks", b"child")).status.name
            return sent, threads_of_portals()

        assert in_a_fork(leave) == "('OK', 0)"
        assert other.send(message("Forks", b"x")).status.name == "OK"
