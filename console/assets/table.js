// A table of any number of rows: only those in sight are in the page. Sorted by its headings, narrowed by a text.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { count } from "./words.js";

const ROW = 34, MARGIN = 12;

export function compare(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return 1;
  if (other === null || other === undefined) return -1;
  return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
}

// The rows that a text leaves, in the order of a column.
export function arranged(rows, columns, text, order) {
  const wanted = text.trim().toLowerCase();
  const search = columns.filter((each) => each.search);
  const left = wanted
    ? rows.filter((row) => search.some((each) => String(each.value(row)).toLowerCase().includes(wanted))) : [...rows];
  const column = columns.find((each) => each.name === order.by);
  if (column) left.sort((one, other) => (order.down ? -1 : 1) * compare(column.value(one), column.value(other)));
  return left;
}

// Which rows are in sight: the first, and the one after the last.
export function window_(top, height, total) {
  const first = Math.max(0, Math.min(total, Math.floor(top / ROW)) - MARGIN);
  return [first, Math.min(total, Math.ceil((top + height) / ROW) + MARGIN)];
}

export function Table({ label, columns, rows, id, first, filter = true, most = 18 }) {
  const [text, setText] = useState("");
  const [order, setOrder] = useState(first || { by: null, down: false });
  const [top, setTop] = useState(0);
  const box = useRef(null);
  const frame = useRef(0);
  const shown = useMemo(() => arranged(rows, columns, text, order), [rows, text, order]);
  const height = Math.min(shown.length, most) * ROW;
  const [begin, end] = window_(top, height, shown.length);
  useEffect(() => { if (box.current) box.current.scrollTop = 0; setTop(0); }, [text, order]);

  function scrolled() {
    if (frame.current) return;
    frame.current = requestAnimationFrame(() => {
      frame.current = 0;
      if (box.current) setTop(box.current.scrollTop);
    });
  }
  const sorts = (column) => () => setOrder({
    by: column.name, down: order.by === column.name ? !order.down : Boolean(column.number),
  });
  const sorted = (column) => order.by !== column.name ? undefined : order.down ? "descending" : "ascending";

  return html`<div class="list">
    ${filter && html`<p class="find"><label>Find <input type="search" value=${text} aria-controls=${id}
        onInput=${(event) => setText(event.target.value)} /></label>
      <span role="status">${count(shown.length)}${shown.length === rows.length ? "" : ` of ${count(rows.length)}`}</span></p>`}
    <div class="scroll" ref=${box} onScroll=${scrolled} tabindex="0" role="region" aria-label=${label}
         style=${{ height: `${height + ROW + 2}px` }}>
      <table id=${id} aria-label=${label} aria-rowcount=${shown.length + 1}>
        <colgroup>${columns.map((each) => html`<col key=${each.name} style=${{ width: each.width || "auto" }} />`)}</colgroup>
        <thead><tr aria-rowindex="1">${columns.map((each) => html`
          <th key=${each.name} scope="col" class=${each.number ? "number" : ""} aria-sort=${sorted(each)}>
            <button type="button" onClick=${sorts(each)}>${each.name}</button></th>`)}</tr></thead>
        <tbody>
          ${begin > 0 && html`<tr key="above" aria-hidden="true"><td colspan=${columns.length} class="gap" style=${{ height: `${begin * ROW}px` }}></td></tr>`}
          ${shown.slice(begin, end).map((row, index) => html`
            <tr key=${columns[0].key ? columns[0].key(row) : columns[0].value(row)} aria-rowindex=${begin + index + 2} class="row">
              ${columns.map((each, place) => place === 0
                ? html`<th key=${each.name} scope="row" title=${each.value(row)}>${each.show ? each.show(row) : each.value(row)}</th>`
                : html`<td key=${each.name} class=${each.number ? "number" : ""} title=${each.title ? each.title(row) : undefined}>${each.show ? each.show(row) : each.value(row)}</td>`)}
            </tr>`)}
          ${end < shown.length && html`<tr key="below" aria-hidden="true"><td colspan=${columns.length} class="gap" style=${{ height: `${(shown.length - end) * ROW}px` }}></td></tr>`}
        </tbody>
      </table>
    </div>
  </div>`;
}
