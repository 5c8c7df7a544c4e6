// What the console knows now, pushed by the server; pages read it and are drawn anew when it changes.

const MOST_POINTS = 600;

export const state = {
  view: null,         // the first screen, as the server made it last
  points: [],         // rates, the oldest first
  connected: false,
  lostAt: null,       // since when nothing comes from the server
  session: null,      // what may be done here
  refused: "",        // why the server does not let this page follow; empty when it does, or says nothing
};

const listeners = new Set();
let source = null;

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  for (const listener of listeners) listener();
}

export class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

// Ask the server; what it refuses is an error whose message is for people.
export async function ask(path, { method = "GET", body = null } = {}) {
  const options = { method, headers: {}, credentials: "same-origin" };
  if (method !== "GET") {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body ?? {});
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused(0, "the console does not answer: was it stopped?");
  }
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, value.error || `the console answered ${answer.status}`);
  return value;
}

export function query(path, fields) {
  return ask(`/api/${path}?${new URLSearchParams(fields)}`);
}

export async function loadSession() {
  try {
    state.session = await ask("/api/session");
  } catch {
    state.session = null;
  }
  changed();
  return state.session;
}

// With the token, or with the name and the password of a user.
export async function signIn(given) {
  await ask("/api/session", { method: "POST", body: given });
  await loadSession();
  follow();
}

export async function signOut() {
  await ask("/api/session", { method: "DELETE" });
  await loadSession();
  if (closed()) forget();
}

function closed() {
  return Boolean(state.session && state.session.closed && !state.session.signedIn);
}

// Nothing of the cluster stays in a page that may not see it.
function forget() {
  if (source !== null) source.close();
  source = null;
  Object.assign(state, { view: null, points: [], connected: false, lostAt: null, refused: "" });
  changed();
}

// Why the server does not let this page follow; it says so to a request, and not to an EventSource.
async function refusal() {
  const stop = new AbortController();
  try {
    const answer = await fetch("/api/live", { credentials: "same-origin", signal: stop.signal });
    return answer.ok ? "" : (await answer.json()).error || "";
  } catch {
    return "";
  } finally {
    stop.abort();
  }
}

function take(view) {
  state.view = view;
  state.connected = true;
  state.lostAt = null;
  state.refused = "";
  const newest = view.rate[0];
  const last = state.points[state.points.length - 1];
  if (newest && (!last || newest[0] > last[0])) state.points = [...state.points, newest].slice(-MOST_POINTS);
  changed();
}

// Follow the server for ever: it tells after each look at the cluster.
export function follow() {
  if (source !== null) source.close();
  const mine = source = new EventSource("/api/live");
  source.onopen = async () => {
    await loadSession();
    try {
      const { points } = await ask("/api/history");
      if (points.length > state.points.length) state.points = points;
    } catch { /* the plots begin now */ }
  };
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onerror = async () => {
    if (source !== mine) return;
    if (state.connected || state.lostAt === null) state.lostAt = Date.now();
    state.connected = false;
    changed();
    if (mine.readyState !== EventSource.CLOSED) return;
    await loadSession();  // a console that was started anew knows no sign-in
    if (source !== mine) return;
    if (closed()) return forget();
    state.refused = await refusal();
    changed();
    setTimeout(() => { if (source === mine) follow(); }, 3000);
  };
}
