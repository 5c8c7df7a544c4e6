// The last failovers as timelines, and what returning masters took over from their slaves.

import { html } from "./vendor/htm-preact.js";
import { Asked, Missing, useAsked } from "./asked.js";
import { Section, Timeline } from "./parts.js";
import { Table } from "./table.js";
import { count, plural, span, when } from "./words.js";

const ROWS = [
  { name: "Offset of", value: (row) => row.key, key: (row) => `${row.slaveId} ${row.kind} ${row.key} ${row.queueId}`, search: true, width: "38%" },
  { name: "Queue", value: (row) => row.queueId, number: true },
  { name: "Before", value: (row) => row.before, number: true, show: (row) => count(row.before) },
  { name: "Slave", value: (row) => row.slave, number: true, show: (row) => count(row.slave) },
  { name: "Merged", value: (row) => row.merged, number: true, show: (row) => count(row.merged) },
  { name: "Why", value: (row) => row.why, search: true, width: "30%" },
];

export function Failovers({ state }) {
  const found = useAsked("failovers", {});
  const now = state.view.at;
  return html`
    <${Section} id="seen" title="Seen while somebody looks">
      ${state.view.failovers.length ? state.view.failovers.map((each) =>
        html`<${Timeline} key=${each.group + each.began} failover=${each} now=${now} />`)
        : html`<p class="quiet">None yet. A failover is followed step by step while a page is open; what came back before stands below.</p>`}
    <//>
    <${Section} id="reports" title="Give-back reports" note="what returning masters took over">
      <${Asked} found=${found}>${(value) => html`
        <${Missing} names=${value.missing} what="what was given back" />
        ${value.reports.length ? value.reports.map((each) => html`<${Report} key=${each.group} report=${each} now=${now} />`)
          : html`<p class="quiet">No master has come back yet.</p>`}`}<//>
    <//>`;
}

function Report({ report, now }) {
  const changed = report.rows.length;
  return html`<article aria-label=${`report of ${report.group}`}>
    <h3>${report.group} <small>${when(report.beganAt, now)}</small></h3>
    <p>${report.cause}; compared ${plural(report.compared, "offset")} with ${report.slaves.length
      ? report.slaves.map((each) => `slave ${each.brokerId} (${each.address})`).join(", ") : "no slave"}${
      report.endedAt ? ` in ${span(report.endedAt - report.beganAt)}` : ", and was broken off"}, ${count(report.changed)} changed.</p>
    ${report.trouble && html`<p class="trouble">${report.trouble}</p>`}
    ${changed > 0 && html`<${Table} id=${`report-${report.group}`} label=${`offsets changed at ${report.group}`} columns=${ROWS} rows=${report.rows} filter=${changed > 18} most=${12} />`}
    ${report.rowsCut && html`<p class="quiet">Only the first of them; mqadmin preOnlineReport lists all.</p>`}
    ${(report.former || []).map((each) => html`<p class="quiet" key=${each.beganAt}>Before, at ${when(each.beganAt, now)}: ${each.cause}, ${plural(each.changed, "offset")} changed.</p>`)}
  </article>`;
}
