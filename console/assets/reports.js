// What the Spark jobs wrote about the stores: the worst report first, and one of them with its tables.

import { html } from "./vendor/htm-preact.js";
import { Asked, useAsked } from "./asked.js";
import { Section, State } from "./parts.js";
import { Table } from "./table.js";
import { count, plural, span, when } from "./words.js";

const to = (name) => `#/reports?${new URLSearchParams({ name })}`;
const SHAPES = { damaged: "none", differ: "acting", agree: "ok", unknown: "unknown" };

function Severity({ of }) {
  return html`<${State} state=${SHAPES[of]} word=${of} />`;
}

const COLUMNS = [
  { name: "Report", value: (row) => row.title, key: (row) => row.name, search: true, width: "24%", show: (row) => html`<a href=${to(row.name)}>${row.title}</a>` },
  { name: "Says", value: (row) => ["agree", "unknown", "differ", "damaged"].indexOf(row.severity), width: "8rem", show: (row) => html`<${Severity} of=${row.severity} />` },
  { name: "Verdict", value: (row) => row.verdict, search: true, width: "40%", title: (row) => row.verdict },
  { name: "Written", value: (row) => row.writtenAt, number: true, show: (row) => when(row.writtenAt) },
  { name: "Folder", value: (row) => row.name, search: true },
];

export function Reports({ fields }) {
  return fields.name ? html`<${One} key=${fields.name} name=${fields.name} />` : html`<${Every} />`;
}

function Every() {
  const found = useAsked("reports", {}, 10000);
  return html`<${Asked} found=${found} whom="the folder">${(value) => !value.configured
    ? html`<p class="quiet">Started with <code>--spark-reports DIR</code>, the console shows here what <code>understudy-spark</code> wrote below that folder.</p>`
    : html`
      ${value.missing.map((each) => html`<p class="unknown" key=${each}>${each}</p>`)}
      ${value.unread > 0 && html`<p class="quiet" role="status">${plural(value.unread, "report")} will be read next.</p>`}
      ${value.leftOut > 0 && html`<p class="quiet">${plural(value.leftOut, "older report")} left out.</p>`}
      ${value.rows.length ? html`<${Table} id="reports-table" label="Reports" columns=${COLUMNS} rows=${value.rows} />`
        : html`<p class="quiet">There is no report in the folder yet.</p>`}`}<//>`;
}

// The columns of a table that a job wrote; those in milliseconds say so in their name.
function columnsOf(table) {
  const rows = table.rows;
  return table.columns.map((name, place) => {
    const number = rows.length > 0 && rows.every((row) => row.cells[place] === null || typeof row.cells[place] === "number");
    const word = !number ? (value) => (value === null ? "–" : String(value))
      : name.endsWith("age (ms)") ? span : name.endsWith("(ms)") ? when : count;
    return {
      name: name.replace(/ \(ms\)$/, ""), number, search: !number, key: (row) => row.at,
      value: (row) => row.cells[place] ?? null, show: (row) => word(row.cells[place] ?? null),
      title: (row) => (row.cells[place] === null ? undefined : String(row.cells[place])),
    };
  });
}

function One({ name }) {
  const found = useAsked("report", { name }, 0);
  return html`<p class="back"><a href="#/reports">All reports</a></p>
    <${Asked} found=${found} whom="the folder">${(report) => html`
      <h2 class="name">${report.title}</h2>
      <p><${Severity} of=${report.severity} /> <small>written ${when(report.writtenAt)}</small></p>
      <p>${report.verdict}</p>
      <dl>${report.facts.map(([key, text]) => html`<dt key=${key}>${key}</dt><dd key=${`${key} text`}><code>${text}</code></dd>`)}</dl>
      ${report.tables.map((each, place) => {
        const table = { ...each, rows: each.rows.map((cells, at) => ({ at, cells })) };
        return html`<${Section} key=${place} id=${`table-${place}`} title=${each.title} note=${each.total > table.rows.length ? `${count(table.rows.length)} of ${count(each.total)} rows` : ""}>
          ${table.rows.length ? html`<${Table} id=${`rows-${place}`} label=${each.title} columns=${columnsOf(table)} rows=${table.rows} filter=${table.rows.length > 18} most=${12} />`
            : html`<p class="quiet">None.</p>`}<//>`;
      })}
      ${report.tablesCut > 0 && html`<p class="quiet">${plural(report.tablesCut, "more table")} in the report's own page.</p>`}`}<//>`;
}
