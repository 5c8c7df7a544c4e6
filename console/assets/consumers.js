// Consumer groups: how far each is, queue by queue, and who its members are.

import { html } from "./vendor/htm-preact.js";
import { Asked, Missing, useAsked } from "./asked.js";
import { Section } from "./parts.js";
import { Reset } from "./reset.js";
import { Table } from "./table.js";
import { count, plural, rate, span, when } from "./words.js";

const to = (name) => `#/consumers?${new URLSearchParams({ name })}`;

const COLUMNS = [
  { name: "Consumer group", value: (row) => row.group, search: true, width: "36%", show: (row) => html`<a href=${to(row.group)}>${row.group}</a>` },
  { name: "Behind", value: (row) => row.behind, number: true, show: (row) => count(row.behind) },
  { name: "Consumed/s", value: (row) => row.perSecond, number: true, show: (row) => rate(row.perSecond) },
  { name: "Last consumed is of", value: (row) => row.lastAt || null, number: true, show: (row) => when(row.lastAt) },
  { name: "Queues", value: (row) => row.queues, number: true, show: (row) => count(row.queues) },
  { name: "Topics", value: (row) => row.topics.join(", "), search: true, width: "26%" },
];

export function Consumers({ fields, state }) {
  return fields.name ? html`<${Group} key=${fields.name} name=${fields.name} now=${state.view.at} session=${state.session} />` : html`<${Every} />`;
}

function Every() {
  const found = useAsked("groups", {});
  return html`<${Asked} found=${found}>${(value) => html`
    <${Missing} names=${value.missing} what="how far consumers are, or only before, by" />
    ${value.rows.length ? html`<${Table} id="groups-table" label="Consumer groups" columns=${COLUMNS} rows=${value.rows} first=${{ by: "Behind", down: true }} />`
      : html`<p class="quiet">No group has consumed anything yet.</p>`}`}<//>`;
}

const QUEUES = [
  { name: "Queue", value: (row) => `${row.topic} ${row.broker} ${row.id}`, search: true, width: "44%",
    show: (row) => html`${row.topic} <small>${row.broker} ${row.id}</small>` },
  { name: "Behind", value: (row) => row.behind, number: true, show: (row) => count(row.behind) },
  { name: "Consumed up to", value: (row) => row.consumed, number: true, show: (row) => count(row.consumed) },
  { name: "Next", value: (row) => row.end, number: true, show: (row) => count(row.end) },
  { name: "Last consumed is of", value: (row) => row.last || null, number: true, show: (row) => when(row.last) },
];

function Group({ name, now, session }) {
  const found = useAsked("group", { name }, 3000);
  return html`<p class="back"><a href="#/consumers">All consumer groups</a></p>
    <h2 class="name"><code>${name}</code></h2>
    <${Asked} found=${found}>${(group) => {
      const behind = group.queues.reduce((sum, queue) => sum + queue.behind, 0);
      const late = group.queues.filter((queue) => queue.behind && queue.last).map((queue) => queue.last);
      return html`
        <p>${behind ? html`<b>${count(behind)}</b> messages behind` : "Not behind"}${late.length ? html`; what was consumed last is of ${span(now - Math.min(...late))} ago` : ""}.</p>
        <${Missing} names=${group.missing} what="how far it is" />
        <${Section} id="queues" title="Queues">
          ${group.queues.length ? html`<${Table} id="queue-table" label="Queues" columns=${QUEUES} rows=${group.queues} filter=${group.queues.length > 18} first=${{ by: "Behind", down: true }} />`
            : html`<p class="quiet">It has no progress in any queue.</p>`}
        <//>
        <${Section} id="move" title="Move its progress"><${Reset} group=${group} session=${session} /><//>
        <${Section} id="members" title="Members" note=${group.type ? `${group.type === "CONSUME_ACTIVELY" ? "pull" : "push"}, ${group.model.toLowerCase()}` : ""}>
          ${group.members.length ? html`<div class="wide"><table>
            <thead><tr><th scope="col">Client</th><th scope="col">Address</th><th scope="col">Language</th><th scope="col">Version</th></tr></thead>
            <tbody>${group.members.map((each) => html`<tr key=${each.client}><th scope="row">${each.client}</th>
              <td><code>${each.address}</code></td><td>${each.language}</td><td>${each.version}</td></tr>`)}</tbody></table></div>`
            : html`<p class="quiet">Nobody of it is connected.</p>`}
          ${group.subscriptions.map((each) => html`<p key=${each.topic}>subscribes to <code>${each.topic}</code> with <code>${each.expression}</code></p>`)}
        <//>`;
    }}<//>`;
}
