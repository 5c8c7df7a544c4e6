"""What tests of security share: a client that signs nothing by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from understudy.remoting.client import RemotingClient, open_client
from understudy.runtime.world import real_world


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with open_client(real_world()) as made:
        yield made
