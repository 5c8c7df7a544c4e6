"""What a peer can do to a server, the bound of it, and the row or test that holds it: ``bench scale --bounds``."""

from __future__ import annotations

from typing import NamedTuple

SCALE, CHAOS = "bench scale", "bench chaos"


class Bound(NamedTuple):
    """One thing that is bounded.

    Attributes:
        what: a peer may do.
        bound: of what it costs.
        held_by: parts of names of rows of :data:`SCALE` or :data:`CHAOS`, or tests as ``file::name``.
    """

    what: str
    bound: str
    held_by: tuple[str, ...]


_TURN = "20 ms of a turn of the loop, p99 25 ms"
_ATTACKED = "20 ms of a turn of the loop, p99 100 ms, nothing acknowledged lost"
_MEMORY = "memory 200 MB where 64 MB of answers, 64 MB of requests and 16 MB of parked ones may wait"
_ATTACKS = "tools/test_tools_attacks.py"
_PLANTED = "::test_a_server_without_a_bound_breaks_the_row_that_holds_it"
_JSON = "format/test_format_json_hostile.py"
_LOAD = "remoting/test_remoting_load.py"
_VALUES = "broker/test_broker_hostile_values.py"


def _scale(what: str, *rows: str) -> Bound:
    return Bound(what, _TURN, tuple(f"{SCALE}: {row}" for row in rows or (what,)))


def _chaos(what: str, bound: str, row: str, *tests: str) -> Bound:
    return Bound(what, f"{bound}; {_ATTACKED}", (f"{CHAOS}: {row}", *tests))


BOUNDS = [
    Bound(
        "a JSON body of 16 MiB in any form",
        "2 s of the processor, or refused; 0.5 s where nobody else needs the machine, which no test can ask for",
        (f"{_JSON}::test_sixteen_mebibytes_are_read_or_refused_soon",),
    ),
    Bound(
        "a large hostile body",
        "the loop keeps its turns",
        ("remoting/test_remoting_large_bodies.py::test_a_hostile_body_is_refused_and_leaves_the_loop_its_turns",),
    ),
    Bound(
        "values that cannot be written again",
        "refused; a table that cannot be saved ends nothing",
        (
            f"{_VALUES}::test_every_accepted_value_is_saved_loaded_shown_and_replicated",
            f"{_VALUES}::test_every_accepted_user_and_rule_is_saved_loaded_and_shown",
            f"{_VALUES}::test_a_retry_policy_that_cannot_be_kept_is_refused",
            f"{_VALUES}::test_a_table_that_cannot_be_written_is_its_own_fault",
        ),
    ),
    _chaos(
        "more idle connections than descriptors",
        "flushes go on, it recovers by itself",
        "descriptors",
        "store/test_store_descriptors.py::test_a_flush_without_descriptors_is_tried_again_and_nothing_is_refused",
        "runtime/test_runtime_accept.py::test_a_lack_of_descriptors_is_waited_out_and_told_once",
    ),
    _chaos("hundreds of requests with large answers in one packet", _MEMORY, "packets", f"{_ATTACKS}{_PLANTED}"),
    _scale("the same, read slowly", "requests in one packet"),
    _chaos("twenty slow readers", _MEMORY, "slow readers", f"{_ATTACKS}{_PLANTED}"),
    _scale("twenty slow readers beside a small sender", "twenty slow readers"),
    _chaos("requests of 16 MiB that are never finished", _MEMORY, "half frames", f"{_ATTACKS}{_PLANTED}"),
    _chaos("waiting pulls with headers of the largest size", _MEMORY, "parked requests", f"{_ATTACKS}{_PLANTED}"),
    Bound(
        "what waits, all peers together",
        "totals, the greedy are refused first",
        (
            f"{_LOAD}::test_a_total_is_never_exceeded_by_holders_that_ask",
            f"{_LOAD}::test_answers_above_a_total_that_was_set_close_who_holds_most",
        ),
    ),
    _chaos("one-way floods of ten peers", "memory 600 MB with the pages of the log", "floods"),
    _scale("one-way floods beside a small sender", "one-way floods"),
    _chaos("bytes that are no frames", _MEMORY, "frames"),
    _chaos("every request code with bad bodies and fields", _MEMORY, "bodies"),
    _chaos(
        "hostile slaves: false lengths and offsets, repeated greetings, none that reads or confirms",
        "64 connections, of one host as many as are free",
        "replication port",
        "ha/test_ha_hostile.py::test_idle_connections_shut_no_slave_out_and_are_bounded",
        "ha/test_ha_hostile.py::test_whatever_a_peer_sends_the_next_one_is_served_and_nothing_is_left",
    ),
    _chaos(
        "the same at a master that a controller leads",
        "one broker id a connection",
        "led replication",
        "ha/test_ha_hostile.py::test_a_slave_that_greets_as_another_one_is_refused_and_leaves_no_ghost",
    ),
    _chaos(
        "slow, large, endless and unread requests for metrics, and scrapes without a pause",
        "16 connections, of one host as many as are free; one text at a time",
        "metrics port",
        "runtime/test_runtime_metrics.py::test_silent_and_slow_clients_are_bounded_and_shut_nobody_out",
        "runtime/test_runtime_metrics.py"
        "::test_others_have_their_turns_while_a_large_text_is_made_and_who_asks_meanwhile_shares_one",
    ),
    _chaos(
        "the same at the console",
        "128 connections, of one host as many as are free",
        "console port",
        "console/test_console_server.py::test_connections_have_a_number_and_pages_that_are_kept_alive_a_smaller_one",
    ),
    _chaos("all this, hostile registrations and one-way floods at a name server", "memory 400 MB", "name server"),
    _chaos("slow readers of a name server", _MEMORY, "name server's readers", f"{_ATTACKS}{_PLANTED}"),
    _chaos("more idle connections than a name server has descriptors", "the same", "name server's descriptors"),
    _chaos("all this at a controller that moves roles meanwhile", "memory 400 MB", "controller"),
    _chaos(
        "slow readers of a controller",
        "memory 40 MB where 4 MB of answers may wait",
        "controller's readers",
        f"{_ATTACKS}{_PLANTED}",
    ),
    _chaos("more idle connections than a controller has descriptors", "the same", "controller's descriptors"),
    _chaos("strangers at the port where a controller's members talk", _MEMORY, "quorum port"),
    _chaos("beginnings and floods that no gRPC client makes", "memory 1.5 GB", "gRPC port"),
    _chaos("what is done to a broker's port, through a proxy", "memory 1.5 GB", "proxy's remoting"),
    _scale("20,000 producer groups of a client that closes", "20,000 producer groups"),
    _scale("5,000 consumer groups of a client"),
    _scale("10,000 subscriptions of a group", "10,000 subscriptions"),
    _scale("locks of 100,000 queues", "100,000 queues locked"),
    _scale("20,000 groups that are made at once", "20,000 groups made"),
    Bound(
        "a list of more than 20,000 topics or groups",
        "refused",
        ("broker/test_broker_long_work.py::test_a_list_that_is_too_long_for_one_piece_is_refused",),
    ),
    Bound(
        "long texts in subscriptions, tags and properties",
        "32,768 characters; what is remembered of them is short and few",
        (
            "format/test_format_remembered.py::test_long_texts_of_peers_leave_nothing_behind",
            f"{_VALUES}::test_every_door_takes_subscriptions_of_one_length",
        ),
    ),
    Bound(
        "a large JSON body of any code, to any program",
        "read beside the loop, or refused",
        ("remoting/test_remoting_every_body.py::test_every_handler_of_every_program_reads_large_json_beside_the_loop",),
    ),
    _scale("2,000 clients that close at once", "2,000 clients"),
    _scale("20,000 waiting pulls woken at once", "20,000 waiting pulls"),
    _scale("members of a group while 2,000 clients are connected", "members of a group of 2,000 clients"),
    _scale("progress of all groups, and of one", "progress of all groups", "progress of a group (208)"),
    _scale("groups that consume a topic", "groups of a topic (300)"),
    _scale("what a broker says of itself", "runtime information (28)", "configuration (26)"),
    _scale("a topic of 60,000 queues", "a topic of 60,000 queues (202)", "time span of 60,000 queues (303)"),
    _scale("10,000 entries of a queue", "10,000 entries of a queue (321)"),
    _scale("a key of 2,000,000 messages", "queries for a key"),
    _scale("a group with very many retry queues", "retry queues"),
    _scale("batches of 60,000 messages"),
    _scale("first reads of what a former process stored", "first reads"),
    _scale("every request code about a topic of 60,000 queues", "every code"),
    _scale("a topic with 2,000 queues that have files deleted", "a topic of 2,000 queues deleted"),
    _scale("files of the log deleted beside 2,000 queues", "log files deleted"),
    _scale("all tables of a broker", "all topics (21)", "all groups", "all offsets", "all producers"),
    _scale("pops of all queues of a topic that has 60,000", "pops of 60,000 queues"),
    _scale("1,000 waiting pops woken at once", "1,000 waiting pops"),
    _scale("batches of acknowledgements", "acknowledgements in batches"),
    Bound(
        "100,000 timer messages due in one second, and 10,000 delayed ones",
        f"{_TURN} and twice that beside nothing",
        (f"{SCALE}: 100,000 timer messages",),
    ),
    _scale("5,000 half messages that nobody decides", "5,000 half messages"),
    _scale("pulls by the longest conditions", "the longest conditions"),
    _scale("shares of the queues of a topic that has 60,000", "queues of a large topic dealt out"),
    _scale("topics that are made", "topics made (17)", "5,000 topics made"),
    _scale("registrations with 20,000 topics"),
    _scale("500 brokers that close at once", "500 brokers close"),
    _scale(
        "single topics, key-values and settings of a name server",
        "topics of 500 brokers told one by one",
        "key-values set and forgotten",
        "settings of a name server changed",
    ),
    _scale("topics, members and topics of a cluster", "all topics (206)", "the cluster (106)", "topics of the cluster"),
    _scale("a slave that copies tables", "a slave copies"),
    _scale("questions about 500 groups of a controller", "sets of 500 groups (1006)", "registrations of 1,500 brokers"),
    _scale("sets and masters of 500 groups changed", "sets of 500 groups changed", "masters of 500 groups moved"),
    _scale("heartbeats of 1,500 brokers of a controller", "1,500 heartbeats in one packet"),
    _scale("1,500 brokers that a controller loses at once", "1,500 brokers close"),
    _scale("every request code of a controller", "every code of a controller", "explanations of a master"),
    _scale("sets and lists of a million for a controller", "sets and lists of a million"),
    _scale("heartbeats of 20,000 brokers that have no id", "heartbeats of 20,000 strangers"),
    Bound(
        "groups and replicas that anybody may apply for",
        "10,000 and 1,000; 1,000 brokers without an id",
        (
            "controller/test_controller_poison.py::test_ids_and_groups_that_anybody_may_apply_for_are_bounded",
            "controller/test_controller_poison.py"
            "::test_brokers_without_an_id_are_watched_up_to_a_number_and_those_with_one_always",
        ),
    ),
    _scale("pushes of a role to a broker that a controller leads", "pushes of a role", "pushes with a million members"),
    _scale("every request code of controllers at a led broker", "every code of a led broker", "epochs of a led broker"),
    _scale("2,000 users that sign in and close at once", "2,000 users sign in"),
    _scale("requests that no user has signed", "wrong signatures"),
    _scale(
        "users and rules shown, made and removed", "all users", "rules of all users", "the whole table", "users made"
    ),
    _scale("a user with as many rules as there may be", "a user with 1,000 rules", "rules of a user replaced"),
    _scale("a user that subscribes to very many topics", "a user that subscribes"),
    _scale("2,000 clients of a proxy that close at once", "2,000 gRPC clients"),
    _scale(
        "floods of HTTP/2", "calls begun and reset", "pings", "settings of HTTP/2", "windows that grow", "byte by byte"
    ),
    _scale("calls of no method beside 900 open ones", "calls of no method"),
    _scale("header lists without an end", "header lists"),
    _scale("receives that wait at a proxy", "18,000 waiting receives"),
    _scale("messages that inflate, or have millions of parts", "messages that inflate", "30 million parts"),
    _scale("answers of a proxy that nobody takes", "large answers"),
    Bound(
        "garbage beside large tables",
        "15,000 objects at once while others are served",
        (
            "runtime/test_runtime_garbage.py::test_young_objects_are_looked_at_in_time_while_old_ones_are_freed",
            "runtime/test_runtime_garbage.py::test_no_look_while_serving_goes_through_a_large_table",
            "remoting/test_remoting_leaving.py::test_an_ended_connection_is_gone_at_once",
        ),
    ),
    Bound(
        "connections that wake at once",
        "32 in a turn of the loop",
        (
            "runtime/test_runtime_wake_limit.py"
            "::test_no_more_than_so_many_connections_wake_in_a_turn_and_all_of_them_do",
        ),
    ),
    Bound(
        "first requests of connections that come at once",
        "3 connections in a turn of the loop",
        ("remoting/test_remoting_newcomers.py::test_the_first_requests_of_connections_have_a_share_of_each_turn",),
    ),
    Bound(
        "calls of a client that leaves, messages that very many clients hold",
        "16 calls and 64 messages in a turn of the loop",
        (
            "proxy/test_proxy_hostile.py::test_a_client_that_leaves_with_very_many_calls_leaves_others_their_turns",
            "proxy/test_proxy_many_held.py::test_a_look_at_very_many_messages_and_their_release_leave_others_turns",
        ),
    ),
    Bound(
        "rules of a user, and tables of users",
        "looked up in an index; written, told and checked in steps",
        (
            "security/test_security_large_tables.py"
            "::test_of_a_thousand_rules_those_are_looked_at_that_are_about_the_name",
            "security/test_security_large_tables.py::test_large_tables_are_told_in_pieces",
            "security/test_security_large_tables.py::test_what_a_large_body_needs_is_checked_step_by_step",
        ),
    ),
    Bound(
        "files of the host asked for by 902",
        "only those of configured folders",
        ("container/test_container_asked_files.py::test_other_files_of_the_host_are_refused_unread",),
    ),
    Bound(
        "the route of another broker",
        "not taken from another host",
        ("namesrv/test_namesrv_trust.py::test_another_host_takes_nothing_from_a_living_broker",),
    ),
    Bound(
        "settings that the next start refuses",
        "refused",
        ("broker_admin/test_broker_admin_live_config.py::test_what_the_next_start_would_refuse_is_refused_now",),
    ),
    Bound(
        "commits that no consumer can mean",
        "refused beyond the end of the queue",
        ("broker/test_broker_commit_bounds.py::test_commits_beyond_the_queue_are_refused_or_ignored",),
    ),
    Bound(
        "bodies that inflate to much more",
        "16 MiB",
        (
            "mqclient/test_mqclient_records.py::test_a_small_body_that_is_a_large_one_is_refused_before_it_is_there",
            "namesrv/test_namesrv_fuzz.py::test_a_small_stream_cannot_fill_the_memory",
        ),
    ),
    Bound(
        "a master or successor that is not there",
        "not believed",
        (
            "container/test_container_forged.py::test_a_forged_return_of_the_master_does_not_touch_replication",
            "container/test_container_forged.py::test_a_forged_successor_does_not_keep_a_slave_from_acting",
        ),
    ),
    Bound(
        "administration by anybody",
        "only listed addresses, where they are set",
        ("remoting/test_remoting_access.py::test_a_closed_server_answers_administration_to_some",),
    ),
]


def markdown() -> str:
    """Return the bounds as a table."""
    rows = [f"| {each.what} | {each.bound} | {', '.join(f'`{name}`' for name in each.held_by)} |" for each in BOUNDS]
    return "\n".join(["| what a peer may do | bound | held by |", "|---|---|---|", *rows]) + "\n"
