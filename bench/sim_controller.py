"""Many simulated quorums: one seed each, in parallel processes; a failing seed prints how to replay it.

    ./understudy bench sim-controller --seeds 2000
    ./understudy bench sim-controller --replay 1234
    ./understudy bench sim-controller --ablate all --seeds 40
    ./understudy bench sim-controller --of controllers --seeds 200
    ./understudy bench sim-controller --brokers --seeds 50      the same as --of brokers
    ./understudy bench sim-controller --mutations        plants the faults of controller_mutations.toml, one at a time
    ./understudy bench sim-controller --brokers --mutations     those of led_mutations.toml; with --fresh no seed is
                                                         played first that noticed one before

Histories are of quorums alone, or of whole controllers with stub brokers: the latter look for two masters in an epoch,
a master from outside the sync state set, and a group that nobody leads although it could be led. Those of brokers are
of three controllers and three production brokers with their stores: nothing acknowledged may be lost or taken back.

``--ablate`` switches one rule off and shows that the checkers notice. Pre-vote and leader stickiness keep a quorum calm
rather than correct: they are looked for under ``--faults calm``, where one follower at a time is in trouble, so that
the leader has a majority all the time and nobody has cause to stand for election. What a member with a new disk must
not do shows under ``--faults disks``, where it comes back to others that are behind while the leader dies. Under
``--faults stalls`` a sync may take longer than an election, and under ``--faults handovers`` leaders do not hear what
comes of handing over. What random histories hardly ever meet (a vote forgotten in a crash, entries of earlier terms
committed by counting, sessions lost with a snapshot) has tests of its own.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from understudy.controller import metadata
from understudy.controller.group import Group
from understudy.controller.raft import consensus, dialect, facts, following, journal, member, sessions
from understudy.testkit.led.history import LedResult, play_led, run_led_seed
from understudy.testkit.quorum.controllers import ControllersResult
from understudy.testkit.quorum.controllers_history import BEHIND, run_controllers_seed
from understudy.testkit.quorum.faults import CALM_FAULTS, DISK_FAULTS, FAULTS, STALL_FAULTS
from understudy.testkit.quorum.handovers import HANDOVER_FAULTS
from understudy.testkit.quorum.history import play_handovers, run_quorum_seed
from understudy.testkit.quorum.simulation import QuorumResult
from understudy.testkit.sim.mutations import hunt_listed
from understudy.testkit.sim.seeds import SeedResult, play_quietly, play_seeds, processors


def _without_sync() -> None:
    def sync(self: Any) -> None:
        if self._rewrite or self.sync_count % 40 == 0:
            original(self)
            return
        self.dirty = False
        self.sync_count += 1

    original = journal.Journal.sync
    journal.Journal.sync = sync


def _without_prefix_rule() -> None:
    def on_append(self: Any, peer: str, message: Any) -> None:
        said = dialect.entries_to_append(message, message.entries, message.previous_index, message.previous_term)
        self._core.hear(peer, said)

    following.Following.on_append = on_append


def _without_sessions() -> None:
    def apply(self: Any, index: int, raw: bytes) -> tuple[int, bytes]:
        return self._run(index, sessions._envelope_decoder.decode(raw))

    sessions.ReplicatedState.apply = apply


def _without_barrier() -> None:
    async def read_barrier(self: Any, timeout_seconds: float = 2.0) -> int:
        return int(self._running().core.applied_index())

    member.QuorumMember.read_barrier = read_barrier


def _without_catch_up() -> None:
    original = consensus.Consensus.__init__

    def initialise(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        if not self.journal.voter:
            self.journal.set_voter()

    consensus.Consensus.__init__ = initialise


def _without_stickiness() -> None:
    consensus.Consensus._hears_leader = lambda self: False


def _without_pre_vote() -> None:
    def may_campaign(self: Any) -> bool:
        if not self.journal.voter:
            return False
        if not self.core.handover_pending():
            term = self.core.term() + 1
            self._candidacy.ask(term, self.now, self.journal.end(), self.now)
            for peer in self.peers:
                self._candidacy.answered(peer, term, facts.ACCEPT)
            return bool(self._candidacy.stand())
        return bool(original(self))

    original = consensus.Consensus.may_campaign
    consensus.Consensus.may_campaign = may_campaign


def _without_sync_state_set() -> None:
    def elect(in_sync: Any, replicas: Any, *rest: Any) -> Any:
        return original(replicas, replicas, *rest)

    original = metadata.elect
    metadata.elect = elect


def _without_master_epoch() -> None:
    def install(group: Any, master_id: int) -> None:
        original(group, master_id)
        group.master_epoch = max(1, group.master_epoch - 1)

    original = Group.install
    Group.install = install  # type: ignore[method-assign]


ABLATIONS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "sync": _without_sync,
    "prefix": _without_prefix_rule,
    "sessions": _without_sessions,
    "barrier": _without_barrier,
    "catch-up": _without_catch_up,
    "stickiness": _without_stickiness,
    "pre-vote": _without_pre_vote,
    "sync-state-set": _without_sync_state_set,
    "master-epoch": _without_master_epoch,
}
OF_CONTROLLERS = ("sync-state-set", "master-epoch")
"""What is decided above the quorum: looked for in histories of whole controllers."""


PROFILES = {
    "mixed": FAULTS,
    "calm": CALM_FAULTS,
    "disks": DISK_FAULTS,
    "stalls": STALL_FAULTS,
    "handovers": HANDOVER_FAULTS,
}
MUTATIONS = {
    "quorum": (Path(__file__).with_name("controller_mutations.toml"), play_handovers),
    "brokers": (Path(__file__).with_name("led_mutations.toml"), play_led),
}
SEEDS_PER_MUTATION = 200
# These rules matter only under some kinds of faults, which a mixture draws too rarely for a short run.
FOCUS = {
    "prefix": ("replay",),
    "catch-up": DISK_FAULTS,
    "stickiness": CALM_FAULTS,
    "pre-vote": CALM_FAULTS,
    "sync-state-set": (BEHIND,),
}


def _run(
    seed: int, of: str, size: int, seconds: float, ablation: str, profile: str
) -> QuorumResult | ControllersResult | LedResult:
    if ablation not in _applied:
        _applied.add(ablation)
        ABLATIONS[ablation]()
    if of == "brokers":
        return run_led_seed(seed, seconds)
    if of == "controllers" or ablation in OF_CONTROLLERS:
        named = {"faults": FOCUS[ablation]} if ablation in FOCUS else {}
        return run_controllers_seed(seed, seconds, **named)
    return run_quorum_seed(seed, size, seconds, FOCUS.get(ablation, PROFILES[profile]))


_applied: set[str] = set()


def _play(options: argparse.Namespace, ablation: str) -> Callable[[int], SeedResult]:
    return functools.partial(
        _run, of=options.of, size=options.size, seconds=options.seconds, ablation=ablation, profile=options.faults
    )


def _batch(options: argparse.Namespace, ablation: str) -> list[SeedResult]:
    """Run the seeds and print each failing one at once, unless a rule is switched off on purpose."""
    whole = ablation == "none"
    how = f"--of {options.of} --size {options.size} --seconds {options.seconds:g} --faults {options.faults}"
    summary = play_seeds(
        _play(options, ablation),
        range(options.first, options.first + options.seeds),
        options.processes,
        (lambda seed: f"./understudy bench sim-controller --replay {seed} {how}") if whole else None,
    )
    print(
        "" if whole else f"without {ablation}: ",
        f"{options.seeds} seeds of {options.size} members x {options.seconds:g} virtual s: {len(summary.failing)} with "
        f"violations, {summary.seconds:.0f} s; {summary.rest}; faults {summary.faults}",
        sep="",
        flush=True,
    )
    return summary.failing


def main(arguments: Sequence[str] | None = None) -> int:
    """Play seeds; *arguments* are those of the process when ``None``. Return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--of", choices=("quorum", "controllers", "brokers"), default="quorum")
    parser.add_argument("--brokers", dest="of", action="store_const", const="brokers", help="the same as --of brokers")
    parser.add_argument("--size", type=int, default=3, choices=(1, 3, 5))
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--processes", type=int, default=processors())
    parser.add_argument("--replay", type=int, metavar="SEED")
    parser.add_argument("--faults", choices=PROFILES, default="mixed")
    parser.add_argument("--mutations", nargs="*", metavar="NAME", help="all of them, or those that are named")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="with --mutations: seeds from --first on only, not first those that noticed one before",
    )
    parser.add_argument("--ablate", choices=[*ABLATIONS, "all"], default="none")
    options = parser.parse_args(arguments)
    if options.of != "quorum" and (options.size != 3 or options.faults != "mixed"):
        parser.error("--size and --faults are of quorums alone: leave them out")
    if options.fresh and options.mutations is None:
        parser.error("--fresh is for --mutations")
    if options.mutations is not None:
        seeds = range(options.first, options.first + SEEDS_PER_MUTATION)
        if options.of not in MUTATIONS:
            parser.error(f"--mutations are planted with --of {' or '.join(MUTATIONS)}")
        path, play = MUTATIONS[options.of]
        return hunt_listed(path, options.mutations, play, seeds, options.processes, fresh=options.fresh)
    if options.replay is not None:
        result = play_quietly(_play(options, options.ablate), options.replay)
        if isinstance(result, (QuorumResult, ControllersResult)):
            print("\n".join(result.newest))
            print(f"digest {result.digest}")
        print(f"seed {result.seed} violations {result.violations} {dict(result.counts)}")
        return bool(result.violations)
    if options.ablate == "none":
        return bool(_batch(options, "none"))
    rules = [rule for rule in ABLATIONS if rule != "none"] if options.ablate == "all" else [options.ablate]
    blind = []
    for rule in rules:
        failing = _batch(options, rule)
        for result in failing[:2]:
            print(f"  seed {result.seed}: {result.violations[0][:200]}")
        if not failing:
            blind.append(rule)
    print(f"rules whose loss went unnoticed: {', '.join(blind) or 'none'}")
    return bool(blind)


if __name__ == "__main__":
    sys.exit(main())
