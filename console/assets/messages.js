// Stored messages: found by id, by key, or by time, with what each group made of them.

import { html, useState } from "./vendor/htm-preact.js";
import { query } from "./live.js";
import { bytes, clock, count, date, millis, plural, when } from "./words.js";

const WAYS = [["id", "id"], ["key", "key"], ["time", "time"]];
const STATES = {
  CONSUMED: "consumed", CONSUMED_BUT_FILTERED: "passed over by its filter", NOT_CONSUME_YET: "not consumed yet",
  PULL: "pulls, which brokers do not follow", NOT_ONLINE: "not online", CONSUME_BROADCASTING: "broadcast",
  UNKNOWN: "unknown",
};
const STEPS = { Pub: "sent", SubAfter: "consumed", EndTransaction: "decided", Recall: "recalled" };
const TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC";
const local = (ms) => `${date(ms)}T${clock(ms)}`;

export function Messages({ fields }) {
  const [way, setWay] = useState("id");
  const [found, setFound] = useState({ rows: null, error: "", busy: false });
  const [topic, setTopic] = useState(fields.topic || "");
  const [wanted, setWanted] = useState("");
  const [traced, setTraced] = useState(TRACE_TOPIC);

  function turn(name) {
    setWay(name);
    setWanted(name === "time" ? local(Date.now() - 600000) : "");
  }

  async function search(event) {
    event.preventDefault();
    const asked = { topic: topic.trim() };
    if (way === "time") asked.from = String(new Date(wanted).getTime());
    else asked[way] = wanted.trim();
    if (way === "id") asked.traceTopic = traced.trim();
    setFound({ rows: null, error: "", busy: true });
    try {
      const answer = await query("messages", asked);
      setFound({ ...answer, error: "", busy: false });
    } catch (error) {
      setFound({ rows: null, error: error.message, busy: false });
    }
  }

  return html`
    <form class="search" onSubmit=${search}>
      <label>Topic <input type="text" required value=${topic} spellcheck="false" onInput=${(event) => setTopic(event.target.value)} /></label>
      <fieldset><legend class="sr">Find by</legend>${WAYS.map(([name, text]) => html`
        <label key=${name}><input type="radio" name="way" value=${name} checked=${way === name} onChange=${() => turn(name)} /> ${text}</label>`)}</fieldset>
      <label>${way === "id" ? "Message id" : way === "key" ? "Key" : "Stored from"}
        <input required spellcheck="false" type=${way === "time" ? "datetime-local" : "text"} value=${wanted}
          step=${way === "time" ? 1 : undefined} onInput=${(event) => setWanted(event.target.value)} /></label>
      ${way === "id" && html`<label>Traced in <input type="text" value=${traced} spellcheck="false" onInput=${(event) => setTraced(event.target.value)} /></label>`}
      <button type="submit" disabled=${found.busy}>Find</button>
    </form>
    ${found.busy && html`<p class="quiet" role="status">Asking the brokers…</p>`}
    ${found.error && html`<p class="trouble" role="alert">${found.error}</p>`}
    ${found.missing && found.missing.length > 0 && html`<p class="unknown">Not looked at: ${found.missing.join("; ")}.</p>`}
    ${found.rows && html`<p role="status">${found.rows.length ? plural(found.rows.length, "message") : "No message"} found.</p>
      ${found.rows.map((each) => html`<${Message} key=${each.offsetId} message=${each} open=${found.rows.length === 1} />`)}`}`;
}

function Message({ message, open }) {
  const facts = [
    ["Stored", `${when(message.storedAt)} at ${message.storeHost}`], ["Born", `${when(message.bornAt)} at ${message.bornHost}`],
    ["Queue", `${message.broker} ${message.queueId}, offset ${count(message.queueOffset)}`],
    ["Log offset", count(message.logOffset)], ["Tag", message.tag], ["Keys", message.keys],
    ["Given back", message.times ? plural(message.times, "time") : "never"], ["Offset id", message.offsetId],
  ].filter(([, text]) => text);
  return html`<details class="message" open=${open}>
    <summary><code>${message.id}</code> <small>${when(message.storedAt)}${message.keys ? `, ${message.keys}` : ""}, ${bytes(message.bytes)}</small></summary>
    <dl>${facts.map(([name, text]) => html`<dt key=${name}>${name}</dt><dd key=${`${name} text`}>${text}</dd>`)}</dl>
    <h3>Body <small>${message.isText ? "" : "no text: its bytes"}${message.cut ? ", only the front" : ""}</small></h3>
    <pre tabindex="0">${message.body}</pre>
    ${message.tracks && html`<h3>Who consumed it</h3>
      ${message.tracks.length ? html`<ul>${message.tracks.map((each) => html`<li key=${each.group}><b>${each.group}</b>: ${STATES[each.state] || each.state}${
        each.why ? html` <small>${each.why}</small>` : ""}</li>`)}</ul>` : html`<p class="quiet">No group consumes its topic.</p>`}`}
    ${message.tracksMissing && html`<p class="unknown">Who consumed it is not told: ${message.tracksMissing}</p>`}
    ${message.retries && message.retries.length > 0 && html`<h3>Retries</h3>
      <ul>${message.retries.map((each) => html`<li key=${each.topic + each.storedAt}><b>${each.group}</b>: ${each.dead
        ? html`a dead letter after ${plural(each.times, "retry", "retries")}` : html`given back for the ${count(each.times)}. time`}, ${when(each.storedAt)}
        <small><code>${each.topic}</code></small></li>`)}</ul>`}
    ${message.retriesMissing && html`<p class="unknown">Not all retries are told: ${message.retriesMissing}</p>`}
    <${Trace} message=${message} />
    <h3>Properties</h3>
    <dl>${Object.entries(message.properties).map(([name, text]) => html`<dt key=${name}><code>${name}</code></dt><dd key=${`${name} text`}><code>${text}</code></dd>`)}</dl>
  </details>`;
}

// What the clients themselves told of it.
function Trace({ message }) {
  if (message.traceMissing) return html`<h3>Trace</h3><p class="unknown">Not told: ${message.traceMissing}</p>`;
  if (!message.trace) return null;
  return html`<h3>Trace</h3>
    ${message.trace.length ? html`<div class="wide"><table aria-label="Trace">
      <thead><tr><th scope="col">Step</th><th scope="col">Group</th><th scope="col">Client</th><th scope="col">When</th>
        <th scope="col" class="number">Took</th><th scope="col">Ended</th></tr></thead>
      <tbody>${message.trace.map((each, place) => html`<tr key=${place} class=${each.success ? "" : "acting"}><th scope="row">${STEPS[each.kind] || each.kind}</th>
        <td>${each.group || "–"}</td><td><code>${each.host}</code></td><td>${when(each.at)}</td><td class="number">${millis(each.tookMs)}</td>
        <td>${each.success ? (each.kind === "EndTransaction" ? "committed" : "well") : each.kind === "EndTransaction" ? "not committed" : "failed"}</td></tr>`)}</tbody></table></div>`
      : html`<p class="quiet">Its clients told nothing of it there; they trace only when they are told to.</p>`}
    ${message.stepsCut && html`<p class="quiet">Only the first of its steps.</p>`}`;
}
