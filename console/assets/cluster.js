// The cluster map: which process hosts which brokers; every group with all its members, and what runs on each, with the
// reasons; of a group that controllers lead, its SyncStateSet.

import { html, useState } from "./vendor/htm-preact.js";
import { Asked, useAsked } from "./asked.js";
import { Containers } from "./containers.js";
import { Section, Since, State } from "./parts.js";
import { SyncSet } from "./syncset.js";
import { bytes, percent, rate, when } from "./words.js";

const WIDTHS = ["5%", "15%", "11%", "13%", "5%", "8%", "7%", "6%", "6%", "5%", "11%", "8%"];

export function Cluster({ state }) {
  const { groups, containers, at } = state.view;
  const clusters = [...new Set(groups.map((each) => each.cluster))].sort();
  return html`<${Containers} rows=${containers} now=${at} />
    ${clusters.map((cluster, number) => html`
      <${Section} key=${cluster} id=${`cluster-${number}`} title=${cluster || "no cluster"}>
        ${groups.filter((each) => each.cluster === cluster).map((group) =>
          html`<${Group} key=${group.name} group=${group} now=${at} />`)}
      <//>`)}`;
}

const PLACES = { own: "a process of its own", unnamed: "in a container that is not told", unknown: "" };

function place(member) {
  return member.place === "container" ? html`in <code>${member.container}</code>` : PLACES[member.place];
}

function Group({ group, now }) {
  const state = group.state === "master" && !group.answers ? "unknown" : group.state;
  return html`<section class="group" aria-label=${`broker group ${group.name}`}>
    <h3>${group.name} <${State} state=${state} word=${state === "unknown" ? "master does not answer" : undefined} />
      <small>since <${Since} at=${group.since} now=${now} exact=${group.exact} /></small></h3>
    ${group.why && html`<p class="quiet">${group.why}</p>`}
    <div class="wide"><table>
      <colgroup>${WIDTHS.map((width, place) => html`<col key=${place} style=${{ width }} />`)}</colgroup>
      <thead><tr><th scope="col">Broker</th><th scope="col">Address, container</th><th scope="col">Part</th><th scope="col">Role</th>
        <th scope="col" class="number">Epoch</th><th scope="col" class="number">Log end</th>
        <th scope="col" class="number">Behind</th><th scope="col" class="number">In/s</th><th scope="col" class="number">Out/s</th>
        <th scope="col" class="number">Disk</th><th scope="col">Runs since</th><th scope="col"><span class="sr">Services</span></th></tr></thead>
      <tbody>${group.members.map((each) => html`<${Member} key=${each.address} member=${each} now=${now} />`)}</tbody>
    </table></div>
    <${SyncSet} group=${group} now=${now} />
  </section>`;
}

function Member({ member, now }) {
  const [open, setOpen] = useState(false);
  const bad = !member.answers;
  return html`<tr class=${bad ? "none" : ""}>
      <th scope="row">${member.id}</th>
      <td><code>${member.address}</code>${place(member) && html`<small class="why">${place(member)}</small>`}</td>
      <td>${member.part}${member.isolated ? html`<small class="why">isolated</small>` : ""}
        ${bad && member.silentSince ? html`<small class="why">silent since ${when(member.silentSince, now)}</small>` : ""}
        ${member.warnings.map((each) => html`<small class="why warn">${each}</small>`)}</td>
      <td>${member.kind || "–"}${member.inSync !== null && member.part === "master" ? html` <small>${member.inSync} in sync</small>` : ""}</td>
      <td class="number">${member.epoch ?? "–"}</td>
      <td class="number" title=${member.logEnd}>${bytes(member.logEnd)}</td>
      <td class="number">${bytes(member.behindBytes)}</td>
      <td class="number">${rate(member.put)}</td><td class="number">${rate(member.got)}</td>
      <td class="number">${percent(member.disk)}</td>
      <td>${when(member.boot, now)}${member.version ? html` <small>${member.version}</small>` : ""}</td>
      <td>${member.hasRoster && member.answers && html`<button type="button" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        Services<span class="sr"> of broker ${member.id} at ${member.address}</span></button>`}</td>
    </tr>
    ${open && html`<tr><td colspan="12" class="inner"><${Roster} address=${member.address} now=${now} /></td></tr>`}`;
}

function Roster({ address, now }) {
  const found = useAsked("roster", { address });
  return html`<${Asked} found=${found}>${(roster) => html`
    <table class="roster"><caption>What runs on <code>${address}</code>, and why</caption>
      <thead><tr><th scope="col">Service</th><th scope="col">State</th><th scope="col">Since</th><th scope="col">Why</th></tr></thead>
      <tbody>${roster.services.map((each) => html`<tr key=${each.name} class=${each.state}>
        <th scope="row">${each.name}</th><td>${each.state}</td>
        <td>${each.state === "off" ? "–" : when(each.startedAt, now)}</td><td>${each.reason}</td></tr>`)}</tbody>
    </table>`}<//>`;
}
