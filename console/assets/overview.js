// The first screen: is every group led, who lags, what waits, how much goes through, the last failovers.

import { html } from "./vendor/htm-preact.js";
import { Section, Since, State, Timeline } from "./parts.js";
import { Plot } from "./plot.js";
import { outOf } from "./syncset.js";
import { bytes, count, millis, plural, rate, span } from "./words.js";

const KINDS = { half: "half messages", pop: "popped messages", timer: "timer messages", delay: "delayed messages" };

export function Overview({ state }) {
  const { view, points } = state;
  const series = (index) => points.map((point) => [point[0], point[index]]);
  return html`
    <p class="verdict" role="status"><${State} state=${view.verdict.state} word=${view.verdict.text} /></p>
    <${Groups} groups=${view.groups} now=${view.at} />
    <div class="columns">
      <${Lagging} lag=${view.lag} now=${view.at} />
      <${Waiting} waiting=${view.waiting} />
    </div>
    <${Section} id="throughput" title="Throughput" note="messages per second, of ten minutes at most">
      <div class="plots">
        <${Plot} title="in" points=${series(1)} word=${rate} kind="a" />
        <${Plot} title="out" points=${series(2)} word=${rate} kind="b" />
        <${Plot} title="99 of 100 stored within" points=${series(3)} word=${millis} kind="c" />
      </div>
    <//>
    ${view.failovers.length > 0 && html`
      <${Section} id="failovers" title="Last failovers" note="seen since somebody looks">
        ${view.failovers.slice(0, 3).map((each) =>
          html`<${Timeline} key=${each.group + each.began} failover=${each} now=${view.at} />`)}
      <//>`}`;
}

function Groups({ groups, now }) {
  if (!groups.length) return html`<p>No broker group is known yet.</p>`;
  return html`<${Section} id="groups" title="Broker groups">
    <div class="wide"><table>
      <thead><tr><th scope="col">Group</th><th scope="col">State</th><th scope="col">Who leads</th>
        <th scope="col">Since</th><th scope="col">Replicas</th><th scope="col" class="number">Farthest behind</th>
        <th scope="col" class="number">In/s</th><th scope="col" class="number">Out/s</th></tr></thead>
      <tbody>${groups.map((group) => html`<${GroupRow} key=${group.name} group=${group} now=${now} />`)}</tbody>
    </table></div>
  <//>`;
}

function GroupRow({ group, now }) {
  const leader = group.members.find((each) => each.address === group.leader);
  const listed = group.members.filter((each) => each.registered);
  const gone = group.members.length - listed.length;
  const behind = listed.map((each) => each.behindBytes).filter((each) => each !== null);
  const state = group.state === "master" && !group.answers ? "unknown" : group.state;
  const plain = group.state === "master" && group.answers;
  return html`<tr class=${state} data-group=${group.name}>
    <th scope="row">${group.name}<small>${group.cluster}</small></th>
    <td><${State} state=${state} word=${state === "unknown" ? "does not answer" : undefined} /></td>
    <td>${leader ? html`<code>${leader.address}</code>${leader.id ? html`<small>slave ${leader.id}</small>` : ""}` : "nobody"}
      ${!plain && group.why ? html`<small class="why">${group.why}</small>` : ""}</td>
    <td><${Since} at=${group.since} now=${now} exact=${group.exact} /></td>
    <td>${listed.length}${gone ? html` <small>and ${gone} gone</small>` : ""}
      ${outOf(group.syncSet) && html`<small class="why warn">${outOf(group.syncSet)}</small>`}</td>
    <td class="number">${behind.length ? bytes(Math.max(...behind)) : html`<span class="none">no slave</span>`}</td>
    <td class="number">${rate(leader ? leader.put : null)}</td>
    <td class="number">${rate(leader ? leader.got : null)}</td>
  </tr>`;
}

function Unknown({ names, what }) {
  return names.length
    ? html`<p class="unknown">Unknown, or as of before, for ${names.join(", ")}: ${what}.</p>` : null;
}

function Lagging({ lag, now }) {
  return html`<${Section} id="lag" title="Who lags" note=${lag.groups ? `${plural(lag.groups, "group")} behind` : ""}>
    <${Unknown} names=${lag.unknown} what="not told how far consumers are" />
    ${lag.rows.length ? html`<div class="wide"><table>
      <thead><tr><th scope="col">Consumer group</th><th scope="col" class="number">Behind</th>
        <th scope="col" class="number">Consumed/s</th><th scope="col" class="number">Last consumed is of</th></tr></thead>
      <tbody>${lag.rows.map((row) => html`<tr key=${row.group}>
        <th scope="row">${row.group}<small>${row.topics.length === 1 ? row.topics[0] : plural(row.topics.length, "topic")}</small></th>
        <td class="number">${count(row.behind)}</td><td class="number">${rate(row.perSecond)}</td>
        <td class="number">${row.lastAt ? html`${span(now - row.lastAt)} <small>ago</small>` : "–"}</td></tr>`)}</tbody>
    </table></div>` : !lag.unknown.length && html`<p class="fine">No consumer group is behind.</p>`}
  <//>`;
}

function Waiting({ waiting }) {
  const kinds = waiting.kinds.filter((each) => each.count);
  return html`<${Section} id="waiting" title="What waits">
    <${Unknown} names=${waiting.unknown} what="not told what waits" />
    ${waiting.cannotSay.length > 0 && html`<p class="unknown">Brokers of the reference cannot say: ${waiting.cannotSay.join(", ")}.</p>`}
    ${kinds.length ? html`<div class="wide"><table>
      <thead><tr><th scope="col">Kind</th><th scope="col" class="number">Waits</th><th scope="col" class="number">Stuck</th>
        <th scope="col" class="number">Oldest stuck</th></tr></thead>
      <tbody>${kinds.map((each) => html`<tr key=${each.kind} class=${each.stuck ? "acting" : ""}>
        <th scope="row">${KINDS[each.kind]}</th><td class="number">${count(each.count)}</td>
        <td class="number">${count(each.stuck)}</td>
        <td class="number">${each.stuck ? span(each.oldestMs) : "–"}</td></tr>`)}</tbody>
    </table></div>` : !waiting.unknown.length && html`<p class="fine">Nothing waits.</p>`}
    ${waiting.rows.map((row) => html`<p class="stuck" key=${row.broker + row.kind + row.place}>
      <b>${row.broker}, ${row.place}</b>: ${row.why}${row.advice ? html`; <em>${row.advice}</em>` : ""}.</p>`)}
  <//>`;
}
