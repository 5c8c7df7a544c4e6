// The SyncStateSet of a group that controllers lead: who is in it, and why the others are not.

import { html } from "./vendor/htm-preact.js";
import { State } from "./parts.js";
import { bytes, plural, span } from "./words.js";

export function SyncSet({ group, now }) {
  const set = group.syncSet;
  if (!set) return null;
  const total = set.replicas.length;
  return html`<div class="syncset" role="group" aria-label=${`SyncStateSet of ${group.name}`}>
    ${set.error && html`<p class="trouble">${total ? `As of ${span(now - set.at)} ago` : "Not known"}: its controllers (${
      set.controllers.join(", ")}) do not tell: ${set.error}.</p>`}
    ${set.notes.map((each) => html`<p class="warn" key=${each}>${each}.</p>`)}
    ${total > 0 && html`<table>
      <caption>SyncStateSet: <b>${set.inSet} of ${plural(total, "replica")}</b>, master epoch ${set.masterEpoch}, syncStateSetEpoch ${
        set.setEpoch}; <small>told by the controller <code>${set.leader}</code></small></caption>
      <thead><tr><th scope="col">Replica</th><th scope="col">Address</th><th scope="col">In the set</th>
        <th scope="col">Controllers</th><th scope="col" class="number">Behind</th><th scope="col">Why</th></tr></thead>
      <tbody>${set.replicas.map((each) => html`<tr key=${each.id} class=${each.inSet ? "in" : "out"}>
        <th scope="row">${each.id}${each.master ? html` <small>master</small>` : ""}</th>
        <td><code>${each.address}</code></td>
        <td>${each.inSet ? html`<${State} state="ok" word="in" />` : html`<${State} state="acting" word="out" />`}</td>
        <td>${each.alive ? "hear it" : "hear nothing"}</td>
        <td class="number">${bytes(each.behindBytes)}</td>
        <td>${each.why || "–"}</td></tr>`)}</tbody>
    </table>`}
  </div>`;
}

// Whoever is out of the set, in a word for a list of groups; nothing while nobody is.
export function outOf(set) {
  const out = set ? set.replicas.filter((each) => !each.inSet).length : 0;
  return out ? `${out} of ${set.replicas.length} not in the SyncStateSet` : "";
}
