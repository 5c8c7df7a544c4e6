// Moving a group's progress on a topic: first what it would do, then doing it, then taking it back.

import { html, useState } from "./vendor/htm-preact.js";
import { ask, query } from "./live.js";
import { count, plural } from "./words.js";

export function Reset({ group, session }) {
  // What was given back comes last: its own topics are what people move.
  const topics = [...new Set(group.queues.map((each) => each.topic))]
    .sort((one, other) => one.startsWith("%") - other.startsWith("%") || one.localeCompare(other));
  const [topic, setTopic] = useState(topics[0] || "");
  const [to, setTo] = useState("end");
  const [time, setTime] = useState("");
  const [plan, setPlan] = useState(null);
  const [done, setDone] = useState(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);

  if (!topics.length) return html`<p class="quiet">It has no progress that could be moved.</p>`;
  if (!session || !session.signedIn) {
    return html`<p class="quiet">${session && session.token ? "Sign in to move it."
      : "This console was started without a token, so nothing can be changed here."}</p>`;
  }
  async function trying(work) {
    setBusy(true);
    setError("");
    try {
      await work();
    } catch (failed) {
      setError(failed.message);
    }
    setBusy(false);
  }
  const preview = (event) => {
    event.preventDefault();
    const wanted = to === "time" ? String(new Date(time).getTime()) : to;
    setDone(null);
    setPlan(null);
    return trying(async () => setPlan(await query("reset", { group: group.name, topic, to: wanted })));
  };
  const move = () => trying(async () => {
    const answer = await ask("/api/reset", { method: "POST", body: { group: group.name, topic: plan.topic, rows: plan.rows } });
    setPlan(null);
    setDone({ ...answer, text: "moved" });
  });
  const undo = () => trying(async () => {
    const answer = await ask("/api/undo", { method: "POST", body: { undo: done.undo } });
    setDone({ ...answer, text: "moved back" });
  });
  const shown = plan || done;
  return html`
    <form class="search" onSubmit=${preview}>
      <label>Topic <select value=${topic} onChange=${(event) => { setTopic(event.target.value); setPlan(null); }}>
        ${topics.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
      <label>To <select value=${to} onChange=${(event) => { setTo(event.target.value); setPlan(null); }}>
        <option value="end">the end: skip what waits</option><option value="begin">the beginning: all of it again</option>
        <option value="time">a time</option></select></label>
      ${to === "time" && html`<label>Stored from <input type="datetime-local" step="1" required value=${time}
        onInput=${(event) => { setTime(event.target.value); setPlan(null); }} /></label>`}
      <button type="submit" disabled=${busy}>Preview</button>
    </form>
    ${error && html`<p class="trouble" role="alert">${error}</p>`}
    ${done && done.failed.length > 0 && html`<p class="trouble" role="alert">${done.rows.length} of ${plural(done.wanted, "queue")} ${done.text}: ${done.failed.join("; ")}</p>`}
    ${done && !done.ended && html`<p role="alert">It goes on: ${done.rows.length} of ${plural(done.wanted, "queue")} ${done.text} so far. Undo takes back all of it when it has ended.</p>`}
    ${done && html`<p role="status">${plural(done.rows.length, "queue")} ${done.text}. <button type="button" disabled=${busy} onClick=${undo}>Undo</button>
      ${done.elsewhere.length > 0 && html` <small>Not where they were put, as members go on: ${done.elsewhere.join(", ")}.</small>`}</p>`}
    ${shown && html`<div class="wide"><table aria-label=${plan ? "What it would do" : "What was done"}>
      <thead><tr><th scope="col">Queue</th><th scope="col" class="number">Before</th><th scope="col" class="number">After</th>
        <th scope="col" class="number">Messages</th></tr></thead>
      <tbody>${shown.rows.map((row) => html`<tr key=${`${row.broker} ${row.id}`}><th scope="row">${row.broker} ${row.id}</th>
        <td class="number">${count(row.before)}</td><td class="number">${count(row.after)}</td>
        <td class="number">${row.after === row.before ? "as it is" : row.after > row.before ? `${count(row.after - row.before)} skipped` : `${count(row.before - row.after)} again`}</td></tr>`)}</tbody>
    </table></div>`}
    ${plan && html`<p><button type="button" disabled=${busy} onClick=${move}>Move ${plural(plan.rows.length, "queue")}</button></p>`}`;
}
