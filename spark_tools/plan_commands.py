"""`plan show`, `plan verify`, `plan apply` and `plan undo`; none of them needs Spark."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice

from understudy.spark_tools import exits, live
from understudy.spark_tools.admin import AdminClient, AdminError
from understudy.spark_tools.live import Assessment, ChangeResult, LiveApply
from understudy.spark_tools.offline import (
    DONE,
    OfflineApply,
    Result,
    changed_inputs,
    check_readable,
    store_path,
)
from understudy.spark_tools.plan import Plan, PlanError, load_plan
from understudy.spark_tools.store_lock import check_stopped

Say = Callable[[str], None]
SHOWN_CHANGES = 50


def show(options: Namespace, say: Say) -> int:
    """Prints what a plan would do."""
    plan = load_plan(options.plan, options.key)
    say(f"plan {plan.digest[:16]} for {plan.header['replica_set']}: {plan.count} changes")
    for store in plan.stores.values():
        say(f"  store {store['name']} = {store['path']}, log {store['log']['begin']} to {store['log']['end']}")
    for kind, count in plan.kinds().most_common():
        say(f"  {count} {kind}")
    limit = plan.count if options.all else SHOWN_CHANGES
    for change in islice(plan.changes(), limit):
        current = ", ".join(f"{name} {value}" for name, value in change.current.items())
        cost = f"repeated {change.repeated}, skipped {change.skipped}, saved {change.saved}"
        place = f"{change.topic} {change.group} queue {change.queue_id}"
        say(f"{place}: {current} -> {change.proposed} ({cost}): {change.kind}: {change.reason}")
    if limit < plan.count:
        say(f"... {plan.count - limit} more, shown with --all")
    return exits.AGREE


def broker_address(options: Namespace, plan: Plan) -> str | None:
    """Address of the live broker the command is about, None for offline stores.

    Raises:
        PlanError: when the name server does not know the broker.
    """
    if options.broker:
        return str(options.broker)
    if not options.namesrv:
        return None
    name = options.broker_name or plan.header["replica_set"]
    with AdminClient(options.namesrv) as client:
        addresses = client.master_addresses()
    if name not in addresses:
        known = ", ".join(sorted(addresses)) or "none"
        raise PlanError(f"{options.namesrv} has no master of {name} (it has: {known}); give --broker-name or --broker")
    return addresses[name]


def moved_stores(options: Namespace) -> dict[str, str]:
    """Where stores of the plan lie now, as given with --store."""
    return {store.name: store.path for store in options.store or ()}


def verify(options: Namespace, say: Say) -> int:
    """Says whether the plan's inputs are unchanged and whether its changes are still to be made."""
    plan = load_plan(options.plan, options.key)
    address = broker_address(options, plan)
    if address is None:
        changed = changed_inputs(plan, moved_stores(options))
        for line in changed:
            say(line)
        say("inputs changed: make a new plan" if changed else "inputs unchanged: the plan can be applied")
        return exits.REFUSED if changed else exits.AGREE
    with AdminClient(address) as client:
        count = live.check_same_log(plan, client)
        say(f"{address} holds the log the plan was made from ({count} records compared)")
        results = Assessment(client, options.active != "refuse").of(plan.changes())
        return _summary(Counter(), results, say, pending_is_fine=True)


def _summary(counts: Counter[str], results: Iterable[ChangeResult], say: Say, *, pending_is_fine: bool) -> int:
    """Says what is not as it should be as it comes, and at the end how many there are of each status, in `counts`."""
    fine = {live.DONE, live.MOVED, live.PENDING} if pending_is_fine else {live.DONE, live.MOVED}
    for result in results:
        counts[result.status] += 1
        if result.status not in fine:
            change = result.change
            say(f"{change.topic} {change.group} queue {change.queue_id}: {result.status}: {result.detail}")
    say(", ".join(f"{count} {status}" for status, count in counts.most_common()) or "no changes")
    return exits.AGREE if counts.keys() <= fine else exits.DIFFER


def journal_directory(options: Namespace) -> str:
    """Where the journal of a plan is kept: beside it unless told otherwise."""
    return str(options.journal or f"{os.path.splitext(options.plan)[0]}.journal")


def apply(options: Namespace, say: Say) -> int:
    """Carries a plan out, on stopped stores or on a live broker."""
    plan = load_plan(options.plan, options.key)
    address = broker_address(options, plan)
    if options.dry_run:
        return _dry_run(options, plan, address, say)
    if not plan.count:
        say("nothing to change")
        return exits.AGREE
    if address is not None:
        with AdminClient(address) as client:
            online = LiveApply(plan, journal_directory(options), client, options.active)
            try:
                code = _summary(Counter(), online.apply(options.now_ms), say, pending_is_fine=False)
                _say_unseen(online, say)
                return code
            finally:
                online.close()
    offline = OfflineApply(plan, journal_directory(options), moved_stores(options))
    try:
        return _files(offline.apply(options.now_ms), say, "written")
    finally:
        offline.close()


def _say_unseen(online: LiveApply, say: Say) -> None:
    if online.longest_unseen_s:
        longest_ms = online.longest_unseen_s * 1000
        say(
            "each offset was read again right before it was written; a commit in between, "
            f"{longest_ms:.1f} ms at most, would have been overwritten unseen"
        )


def _files(results: list[Result], say: Say, word: str) -> int:
    for store, path, status in results:
        say(f"{store} {path}: {word if status == DONE else status}")
    return exits.AGREE if all(status == DONE for _, _, status in results) else exits.DIFFER


def _dry_run(options: Namespace, plan: Plan, address: str | None, say: Say) -> int:
    show(options, say)
    if address is None:
        moved = moved_stores(options)
        for name in plan.stores:
            check_stopped(store_path(plan, name, moved))
        changed = changed_inputs(plan, moved)
        if changed:
            raise PlanError("; ".join(changed))
        check_readable(plan, moved)
        say(f"dry run: {len(plan.stores)} tables would be written")
        return exits.AGREE
    with AdminClient(address) as client:
        live.check_same_log(plan, client)
        counts: Counter[str] = Counter()
        results = Assessment(client, options.active != "refuse").of(plan.changes())
        code = _summary(counts, results, say, pending_is_fine=True)
    say(f"dry run: {counts[live.PENDING]} offsets would be set on {address}")
    return code


def undo(options: Namespace, say: Say) -> int:
    """Takes an applied plan back."""
    plan = load_plan(options.plan, options.key)
    directory = journal_directory(options)
    if not os.path.isdir(directory):
        raise PlanError(f"nothing to undo: {directory} does not exist")
    address = broker_address(options, plan)
    if address is not None:
        with AdminClient(address) as client:
            online = LiveApply(plan, directory, client, options.active)
            try:
                code = _summary(Counter(), online.undo(), say, pending_is_fine=False)
                _say_unseen(online, say)
                return code
            finally:
                online.close()
    offline = OfflineApply(plan, directory, moved_stores(options))
    try:
        return _files(offline.undo(), say, "restored")
    finally:
        offline.close()


STEPS: dict[str, Callable[[Namespace, Say], int]] = {"show": show, "verify": verify, "apply": apply, "undo": undo}


def run(options: Namespace, say: Say) -> int:
    """Runs a plan command; refusals become one line and their exit code."""
    try:
        return STEPS[options.step](options, say)
    except PlanError as error:
        say(f"refused: {error}")
        return exits.REFUSED
    except AdminError as error:
        say(f"broker: {error}")
        return exits.REFUSED
    except BlockingIOError:
        say(f"refused: another apply or undo works with {journal_directory(options)}")
        return exits.REFUSED
    except OSError as error:
        say(f"{error.filename or options.plan}: {error.strerror or error}; run the same command again to go on")
        return exits.DAMAGED
