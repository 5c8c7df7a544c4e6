"""Commands that controllers answer."""

from __future__ import annotations

from typing import Any

import attrs

from understudy.controller.configuration import FORGET_MEMBER_KEY
from understudy.controller.operators import CHALLENGE, PROOF, forget_proof
from understudy.controller.raft.secret import Secret, read_secret
from understudy.controller.raft.security import SecurityError
from understudy.format.json_dialect import dumps
from understudy.mqadmin import no_master
from understudy.mqadmin.command import Context, command
from understudy.mqadmin.options import UsageError, flag, needed, value
from understudy.mqadmin.read_back import read_back
from understudy.mqclient.admin import cluster
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.session import Session, json_body, split_addresses
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.runtime.properties import format_properties


async def _metadata(context: Context, address: str) -> dict[str, str]:
    return dict((await context.session.call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)).ext or {})


async def _config(session: Session, address: str) -> dict[str, str]:
    return cluster.settings_of((await session.call(address, RequestCode.GET_CONTROLLER_CONFIG)).body, address)


async def _leader(context: Context, address: str) -> str:
    """Return the address of the leader that the controller at *address* knows."""
    leader = (await _metadata(context, address)).get("controllerLeaderAddress")
    if not leader:
        raise ClientError(f"the controller at {address} knows no leader at the moment; try again")
    return leader


@command(
    "getControllerMetaData",
    "Show the controllers and their leader.",
    needed("a", "controllerAddress", "host:port of any controller"),
)
async def get_controller_meta_data(context: Context) -> Any:
    data = await _metadata(context, context.values["a"])
    context.output.line(f"\n#ControllerGroup\t{data.get('group')}")
    context.output.line(f"#ControllerLeaderId\t{data.get('controllerLeaderId')}")
    context.output.line(f"#ControllerLeaderAddress\t{data.get('controllerLeaderAddress')}")
    context.output.lines([f"#Peer:\t{peer}" for peer in (data.get("peers") or "").split(";") if peer])
    return data


@command(
    "getControllerConfig",
    "Show the configuration of controllers.",
    needed("a", "controllerAddress", "host:port of the controllers, separated by semicolons"),
)
async def get_controller_config(context: Context) -> Any:
    result = {}
    for address in split_addresses(context.values["a"]):
        values = result[address] = await _config(context.session, address)
        context.output.line(f"============{address}============")
        context.output.lines([f"{name:<50}=  {text}" for name, text in values.items()])
    return result


@command(
    "updateControllerConfig",
    "Change a configuration value of controllers while they run.",
    needed("a", "controllerAddress", "host:port of the controllers, separated by semicolons"),
    needed("k", "key", "name of the value"),
    needed("v", "value", "new value"),
    value("s", "secretFile", "file with the controllers' secret, for controllerForgetMember from another host"),
)
async def update_controller_config(context: Context) -> Any:
    name, text = context.values["k"], context.values["v"]
    addresses = split_addresses(context.values["a"])
    secret = _secret(context)
    for address in addresses:
        body = format_properties({name: text}).encode()
        accept = (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION)
        answer = await context.session.call(address, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body, accept=accept)
        if answer.code == ResponseCode.SUCCESS:
            if name != FORGET_MEMBER_KEY:
                await read_back(context, address, _config, name, text)
            continue
        asked = answer.ext or {}
        if secret is None or CHALLENGE not in asked:
            raise BrokerError(answer.code, answer.remark or "", address)
        proof = forget_proof(secret, asked.get("controllerId") or "", text, asked[CHALLENGE])
        ext = {CHALLENGE: asked[CHALLENGE], PROOF: proof}
        await context.session.call(address, RequestCode.UPDATE_CONTROLLER_CONFIG, ext, body)
    context.output.line(f"update controller config success![{', '.join(addresses)}]\n{name} : {text}")
    return {address: {name: text} for address in addresses}


def _secret(context: Context) -> Secret | None:
    path = context.values.get("s")
    if path is None:
        return None
    try:
        return read_secret(context.session.world.disk, path)
    except SecurityError as error:
        raise UsageError(str(error)) from None


@command(
    "getSyncStateSet",
    "Show which replicas are in sync.",
    needed("a", "controllerAddress", "host:port of any controller"),
    value("b", "brokerName", "the broker group"),
    value("c", "clusterName", "all broker groups of this cluster"),
    value("i", "interval", "print again every so many seconds"),
    one_of=("b", "c"),
)
async def get_sync_state_set(context: Context) -> Any:
    if "b" in context.values:
        names = [context.values["b"]]
    else:
        info = await cluster.cluster_info(context.session)
        names = [group.name for group in info.groups_of(context.values["c"])]
    leader = await _leader(context, context.values["a"])
    answer = await context.session.call(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=dumps(names))
    table = (await json_body(context.session, answer)).get("replicasInfoTable") or {}
    missing = [name for name in names if name not in table]
    if missing and "b" in context.values:
        raise ClientError(f"the controllers know no broker group {missing[0]}: none of its brokers has registered")
    for name, entry in table.items():
        in_sync = entry.get("inSyncReplicas") or []
        context.output.line(
            f"\n#brokerName\t{name}\n#MasterBrokerId\t{entry.get('masterBrokerId')}\n"
            f"#MasterAddr\t{entry.get('masterAddress')}\n#MasterEpoch\t{entry.get('masterEpoch')}\n"
            f"#SyncStateSetEpoch\t{entry.get('syncStateSetEpoch')}\n#SyncStateSetNums\t{len(in_sync)}"
        )
        context.output.lines([f"\nInSyncReplica:\t{_replica(member)}" for member in in_sync])
        others = entry.get("notInSyncReplicas") or []
        context.output.lines([f"\nNotInSyncReplica:\t{_replica(member)}" for member in others])
    return table


def _replica(member: dict[str, Any]) -> str:
    return (
        f"ReplicaIdentity{{brokerName='{member.get('brokerName')}', brokerId={member.get('brokerId')}, "
        f"brokerAddress='{member.get('brokerAddress')}', alive={str(member.get('alive')).lower()}}}"
    )


@command(
    "electMaster",
    "Make a replica the master of its broker group.",
    needed("a", "controllerAddress", "host:port of any controller"),
    needed("b", "brokerId", "id of the replica"),
    needed("bn", "brokerName", "the broker group"),
    needed("c", "clusterName", "its cluster"),
)
async def elect_master(context: Context) -> Any:
    values = context.values
    leader = await _leader(context, values["a"])
    ext = {
        "clusterName": values["c"],
        "brokerName": values["bn"],
        "brokerId": values.number("b", 0),
        "designateElect": True,
        "invokeTime": context.session.world.clock.wall_ms(),
    }
    try:
        answer = await context.session.call(leader, RequestCode.CONTROLLER_ELECT_MASTER, ext)
    except BrokerError as error:
        why = None
        if error.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED:
            why = (await _explained(context, leader, values["bn"])).reasons.get(values.number("b", 0))
        look = f"mqadmin explainMaster -a {values['a']} -b {values['bn']}"
        more = f"; {look} says who may be elected" if why is None else f": broker {values['b']}: {why}"
        raise BrokerError(error.code, f"{error.remark}{more}", error.address) from None
    header = answer.ext or {}
    context.output.line(
        f"\n#ClusterName\t{values['c']}\n#BrokerName\t{values['bn']}\n"
        f"#BrokerMasterAddr\t{header.get('masterAddress')}\n#MasterEpoch\t{header.get('masterEpoch')}\n"
        f"#SyncStateSetEpoch\t{header.get('syncStateSetEpoch')}"
    )
    members = ((await json_body(context.session, answer)).get("brokerMemberGroup") or {}).get("brokerAddrs") or {}
    context.output.lines([f"\t#Broker\t{key}\t{address}" for key, address in members.items()])
    return {**header, "brokerAddrs": members}


@command(
    "cleanBrokerMetadata",
    "Make the controller forget replicas.",
    needed("a", "controllerAddress", "host:port of any controller"),
    needed("bn", "brokerName", "the broker group"),
    value("b", "brokerControllerIdsToClean", "ids separated by semicolons; all of the group without it"),
    value("c", "clusterName", "its cluster"),
    flag("l", "cleanLivingBroker", "replicas that are alive too"),
)
async def clean_broker_metadata(context: Context) -> Any:
    values = context.values
    ids = values.text("b")
    if ids and not all(part.strip().isdigit() for part in ids.split(";") if part.strip()):
        raise UsageError(f"option -b needs ids separated by semicolons, not {ids!r}")
    leader = await _leader(context, values["a"])
    ext = {
        "clusterName": values.get("c"),
        "brokerName": values["bn"],
        "brokerControllerIdsToClean": ids or None,
        "isCleanLivingBroker": "l" in values,
        "invokeTime": context.session.world.clock.wall_ms(),
    }
    await context.session.call(leader, RequestCode.CLEAN_BROKER_DATA, ext)
    context.output.line(f"clear broker {values['bn']} metadata from controller success! ")
    return {"brokerName": values["bn"], "ids": ids or "all"}


@command(
    "explainMaster",
    "Explain who is master of a broker group, why the others are not, and what is safe to do next.",
    needed("a", "controllerAddress", "host:port of any controller"),
    needed("b", "brokerName", "the broker group"),
)
async def explain_master(context: Context) -> Any:
    leader = await _leader(context, context.values["a"])
    ext = {"brokerName": context.values["b"]}
    answer = await context.session.call(leader, RequestCode.CONTROLLER_EXPLAIN_MASTER, ext)
    text = answer.body.decode()
    context.output.lines(text.splitlines())
    return text


@command(
    "whyNoMaster",
    "Say for a broker group, led by controllers of any kind, which rule refuses each replica, and what is safe to do.",
    needed("a", "controllerAddress", "host:port of the controllers, separated by semicolons"),
    needed("b", "brokerName", "the broker group"),
)
async def why_no_master(context: Context) -> Any:
    name, leader, silent = context.values["b"], "", []
    for address in split_addresses(context.values["a"]):
        try:
            leader = leader or (await _metadata(context, address)).get("controllerLeaderAddress") or ""
        except ClientError as error:
            silent.append(f"{address}: {error}")
    if not leader:
        why = f" ({'; '.join(silent)})" if silent else ""
        raise ClientError(f"no controller is active{why}: a majority of them must run and reach each other")
    answer = await context.session.call(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=dumps([name]))
    group = ((await json_body(context.session, answer)).get("replicasInfoTable") or {}).get(name)
    if group is None:
        raise ClientError(f"the controllers know no broker group {name}: none of its brokers has registered")
    said = await _explained(context, leader, name)
    replicas = [
        attrs.evolve(await _with_log(context, replica), refusal=said.refusal(replica.broker_id))
        for replica in no_master.replicas_of(group)
    ]
    step = no_master.next_step(name, group.get("masterBrokerId"), replicas, said.step)
    context.output.lines(no_master.told(name, group, replicas, step))
    rules = {each.broker_id: no_master.verdict(each, group.get("masterBrokerId")) for each in replicas}
    return {**group, "rules": rules, "nextStep": step}


async def _explained(context: Context, leader: str, name: str) -> no_master.Explained:
    """Return what a controller of ours adds to what any says: nothing where it is none of ours."""
    try:
        ext = {"brokerName": name}
        answer = await context.session.call(leader, RequestCode.CONTROLLER_EXPLAIN_MASTER, ext)
    except ClientError:
        return no_master.Explained()
    return no_master.explained(answer.body.decode("utf-8", "replace"))


async def _with_log(context: Context, replica: no_master.Replica) -> no_master.Replica:
    """Return *replica* with what it tells of its log itself."""
    try:
        body = await json_body(
            context.session, await context.session.call(replica.address, RequestCode.GET_BROKER_EPOCH_CACHE)
        )
    except ClientError:
        return replica
    epochs = [int(each.get("epoch", -1)) for each in body.get("epochList") or ()]
    return attrs.evolve(replica, epoch=max(epochs, default=-1), max_offset=int(body.get("maxOffset") or 0))


@command(
    "explainController",
    "Show what one controller knows of its quorum, the last elections and the last decisions.",
    needed("a", "controllerAddress", "host:port of the controller"),
)
async def explain_controller(context: Context) -> Any:
    answer = await context.session.call(context.values["a"], RequestCode.CONTROLLER_QUORUM_FACTS)
    text = answer.body.decode()
    context.output.lines(text.splitlines())
    return text
