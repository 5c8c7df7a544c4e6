// What waits in the brokers, how long, why, and what to do.

import { html, useState } from "./vendor/htm-preact.js";
import { Asked, Missing, useAsked } from "./asked.js";
import { count, plural, span } from "./words.js";

export function Stuck() {
  const [all, setAll] = useState(false);
  const found = useAsked("stuck", {});
  return html`<p><label><input type="checkbox" checked=${all} onChange=${(event) => setAll(event.target.checked)} />
      also what only waits for its time</label></p>
    <${Asked} found=${found}>${(value) => {
      const rows = value.rows.filter((row) => all || row.stuck);
      return html`
        <${Missing} names=${value.missing} what="what waits, or only before, by" />
        ${value.cannotSay.length > 0 && html`<p class="unknown">Brokers of the reference cannot say: ${value.cannotSay.join(", ")}.</p>`}
        ${rows.length ? html`<div class="wide"><table>
          <thead><tr><th scope="col">Broker</th><th scope="col">What</th><th scope="col" class="number">Messages</th>
            <th scope="col">Of</th><th scope="col" class="number">Waits</th><th scope="col">Why, and what to do</th></tr></thead>
          <tbody>${rows.map((row) => html`<tr key=${row.broker + row.kind + row.place} class=${row.stuck ? "acting" : ""}>
            <th scope="row">${row.broker}</th><td>${row.kind}<small class="why">${row.place}</small></td>
            <td class="number">${count(row.count)}</td>
            <td>${row.topic || "–"}${row.group ? html`<small class="why">${row.group}</small>` : ""}</td>
            <td class="number">${row.waitsMs < 0 ? html`<small>due in</small> ${span(-row.waitsMs)}` : span(row.waitsMs)}</td>
            <td>${row.why}${row.advice ? html`<small class="why">${row.advice}</small>` : ""}</td></tr>`)}</tbody></table></div>`
          : html`<p class="fine">${all ? "Nothing waits." : "Nothing is stuck."}</p>`}
        ${value.more > 0 && html`<p class="quiet">And ${plural(value.more, "more half message")} behind these.</p>`}`;
    }}<//>`;
}
