// Topics, and the queues of one.

import { html } from "./vendor/htm-preact.js";
import { Asked, Missing, useAsked } from "./asked.js";
import { Section } from "./parts.js";
import { Table } from "./table.js";
import { count, rate, span, when } from "./words.js";

const permission = (perm) => `${perm & 4 ? "R" : "–"}${perm & 2 ? "W" : "–"}`;
const to = (page, name) => `#/${page}?${new URLSearchParams({ name })}`;

const COLUMNS = [
  { name: "Topic", value: (row) => row.name, search: true, width: "44%", show: (row) => html`<a href=${to("topics", row.name)}>${row.name}</a>` },
  { name: "Kind", value: (row) => row.kind, search: true },
  { name: "Messages", value: (row) => row.type, search: true, show: (row) => row.type.toLowerCase() || "–" },
  { name: "Queues", value: (row) => row.queues, number: true, show: (row) => count(row.queues) },
  { name: "May", value: (row) => row.perm, show: (row) => permission(row.perm) },
  { name: "Broker groups", value: (row) => row.brokers.join(", "), search: true, width: "20%" },
];

export function Topics({ fields, state }) {
  return fields.name ? html`<${Topic} name=${fields.name} now=${state.view.at} />` : html`<${Every} />`;
}

function Every() {
  const found = useAsked("topics", {}, 10000);
  return html`<${Asked} found=${found}>${(value) => html`
    <${Missing} names=${value.missing} what="which topics there are" />
    <${Table} id="topics" label="Topics" columns=${COLUMNS} rows=${value.rows} first=${{ by: "Topic", down: false }} />`}<//>`;
}

const QUEUES = [
  { name: "Queue", value: (row) => `${row.broker} ${row.id}`, key: (row) => `${row.broker} ${row.id}`, search: true, width: "32%" },
  { name: "First", value: (row) => row.min, number: true, show: (row) => count(row.min) },
  { name: "Next", value: (row) => row.max, number: true, show: (row) => count(row.max) },
  { name: "Held", value: (row) => row.max - row.min, number: true, show: (row) => count(row.max - row.min) },
  { name: "Newest is of", value: (row) => row.last, number: true, show: (row) => when(row.last) },
];

function Topic({ name, now }) {
  const found = useAsked("topic", { name });
  return html`<p class="back"><a href="#/topics">All topics</a></p>
    <h2 class="name"><code>${name}</code></h2>
    <${Asked} found=${found}>${(topic) => html`
      <p>${topic.kind}, ${rate(topic.putPerSecond)} messages per second, ${count(topic.putToday)} today.</p>
      <${Missing} names=${topic.missing} what="what its queues hold" />
      <${Section} id="queues" title="Queues">
        ${topic.queues.length ? html`<${Table} id="queue-table" label="Queues" columns=${QUEUES} rows=${topic.queues} filter=${topic.queues.length > 18} />`
          : html`<p class="quiet">No broker has it.</p>`}
      <//>
      <${Section} id="readers" title="Who consumes it">
        ${topic.consumers.length ? html`<div class="wide"><table>
          <thead><tr><th scope="col">Consumer group</th><th scope="col" class="number">Behind</th><th scope="col" class="number">Consumed/s</th></tr></thead>
          <tbody>${topic.consumers.map((row) => html`<tr key=${row.group}>
            <th scope="row"><a href=${to("consumers", row.group)}>${row.group}</a></th>
            <td class="number">${count(row.behind)}</td><td class="number">${rate(row.perSecond)}</td></tr>`)}</tbody></table></div>`
          : html`<p class="quiet">Nobody has.</p>`}
      <//>`}<//>`;
}
