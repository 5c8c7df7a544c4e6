"""What returning masters took over, as they keep it: the give-back reports behind the timelines."""

from __future__ import annotations

from typing import Any

from understudy.console.model import memory
from understudy.console.model.memory import Memory
from understudy.mqclient.admin import cluster
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.session import Session
from understudy.remoting.codes import ResponseCode

MOST_ROWS = 5_000


async def every_failover(session: Session, known: Memory) -> dict[str, Any]:
    """Return the failovers that were seen, and the newest report of each master that has one."""
    reports, missing = [], []
    for name, group in sorted(known.groups.items()):
        master = group.master
        if master is None or not master.answers or master.answer is None or master.answer.roster is None:
            continue
        try:
            report = await cluster.pre_online_report(session, master.address)
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:  # it has never come back
                missing.append(f"{name}: {error}")
            continue
        except ClientError as error:
            missing.append(f"{name}: {error}")
            continue
        rows = [row for row in report["rows"] if row.get("before") != row.get("merged")]
        reports.append({"group": name, **report, "rows": rows[:MOST_ROWS], "rowsCut": len(rows) > MOST_ROWS})
    reports.sort(key=lambda report: -int(report.get("beganAt") or 0))
    return {"seen": memory.failover_rows(known), "reports": reports, "missing": missing}
