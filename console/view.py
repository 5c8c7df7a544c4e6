"""The cluster as one who asks may see it: connections that sign as that one, what was gathered, and what pages ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from understudy.console.gatherer import Gatherer, Pace
from understudy.console.queries import Queries
from understudy.console.report_files import ReportFiles
from understudy.mqclient.session import SessionOptions, open_session
from understudy.runtime.world import World


@attrs.frozen
class Sources:
    """Where a console finds what it shows.

    Attributes:
        name_servers: of the cluster, ``host:port`` separated by semicolons.
        session: what requests to servers are signed and secured with.
        spark_reports: reports of the Spark jobs; ``None``: there are none.
    """

    name_servers: str
    session: SessionOptions
    spark_reports: ReportFiles | None = None


@attrs.frozen(eq=False)
class View:
    """What one who asks may see.

    Attributes:
        user: who that is; ``""`` for the console itself.
        gatherer: what was gathered.
        queries: what pages ask beyond that.
    """

    user: str
    gatherer: Gatherer
    queries: Queries


@asynccontextmanager
async def open_view(world: World, sources: Sources, pace: Pace) -> AsyncIterator[View]:
    """Look at the cluster as *sources* says, in step with the other views of *pace*, as long as the block lasts."""
    async with open_session(world, sources.name_servers, sources.session) as session:
        gatherer = Gatherer(session, pace)
        async with trio.open_nursery() as nursery:
            credentials = sources.session.credentials
            user = credentials.access_key if credentials is not None else ""
            queries = Queries(session, gatherer, nursery, sources.spark_reports)
            nursery.start_soon(gatherer.run)
            yield View(user, gatherer, queries)
            nursery.cancel_scope.cancel()
