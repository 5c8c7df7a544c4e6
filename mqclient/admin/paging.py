"""Tables of a broker that are too long for one answer."""

from __future__ import annotations

from typing import Any

import attrs

from understudy.format.json_dialect import dumps
from understudy.mqclient.session import Session, json_body
from understudy.remoting.codes import RequestCode

ROWS_OF_A_PAGE = 2000


@attrs.frozen
class PagedTable:
    """How a broker is asked for the rows of a table by pages.

    Attributes:
        code: of the request.
        table: where the rows are in an answer.
        first_key: field of a question that says how many rows are known.
        most_key: field of a question that says how many rows are wanted.
        total_key: field of an answer that says how many rows there are.
    """

    code: RequestCode
    table: str
    first_key: str
    most_key: str
    total_key: str


async def all_rows(session: Session, address: str, paged: PagedTable) -> dict[str, dict[str, Any]]:
    """Return all rows of a table of the broker at *address*, by name. Raises :class:`ClientError`.

    Args:
        session: of the client.
        address: of the broker.
        paged: how it is asked.
    """
    found: dict[str, dict[str, Any]] = {}
    version = ""
    while True:
        ext = {paged.first_key: len(found), paged.most_key: ROWS_OF_A_PAGE, "dataVersion": version}
        answer = await session.call(address, paged.code, ext)
        body = await json_body(session, answer)
        page = body.get(paged.table) or {}
        new_version = dumps(body.get("dataVersion")).decode()
        if version and new_version != version:
            found.clear()  # the table changed between pages: the broker started again from its first entry
        version = new_version
        found.update(page)
        total = (answer.ext or {}).get(paged.total_key)
        if total is None or not page or len(found) >= int(total):
            return found
