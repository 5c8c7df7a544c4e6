// Which process hosts which brokers: a row for each container, its brokers in the order of their groups.

import { html } from "./vendor/htm-preact.js";
import { Section, State } from "./parts.js";
import { plural, span } from "./words.js";

const OTHERS = {
  own: ["a process of its own", "each of these brokers"],
  unnamed: ["a container that is not told", "brokers of the reference"],
  unknown: ["not told", "by these brokers"],
};
// The shape of a broker by its part; the word says the rest.
const SHAPES = { master: "master", acting: "acting", slave: "slave", "not registered": "unknown", gone: "none" };

export function Containers({ rows, now }) {
  if (!rows.length) return null;
  return html`<${Section} id="containers" title="Containers" note="which process hosts which brokers">
    <div class="wide"><table class="containers"><caption class="sr">Containers, and the brokers that each hosts</caption>
      <thead><tr><th scope="col">Process</th><th scope="col">State</th><th scope="col">Brokers by group</th></tr></thead>
      <tbody>${rows.map((row) => html`<${Row} key=${row.kind + row.address} row=${row} now=${now} />`)}</tbody>
    </table></div>
  <//>`;
}

function Row({ row, now }) {
  const named = row.kind === "container";
  return html`<tr class=${named && !row.answers ? "none" : ""} data-container=${row.address || row.kind}>
    <th scope="row">${named ? html`<code>${row.address}</code>` : OTHERS[row.kind][0]}
      <small>${named ? plural(row.brokers.length, "broker") : OTHERS[row.kind][1]}</small></th>
    <td>${!named ? "–" : row.answers ? html`<${State} state="ok" word="answers" />`
      : html`<${State} state="none" word="no broker answers" />${row.silentSince
        ? html`<small class="why">for ${span(now - row.silentSince)}</small>` : ""}`}
      ${row.holdsAllOf.length > 0 && html`<small class="why warn">all of ${row.holdsAllOf.join(", ")} is in it</small>`}</td>
    <td><ul class="hosted">${row.brokers.map((each) => html`<${Broker} key=${each.address} broker=${each} />`)}</ul></td>
  </tr>`;
}

function Broker({ broker }) {
  const state = broker.answers ? SHAPES[broker.part] : "none";
  const word = broker.answers || broker.part === "gone" ? broker.part : `${broker.part}, silent`;
  return html`<li title=${broker.address}><b>${broker.group}</b> ${broker.id} <${State} state=${state} word=${word} /></li>`;
}
