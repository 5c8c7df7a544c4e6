// The frame of all pages: which one is shown, how old it is, light or dark.

import { html, render, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { follow, loadSession, onChange, signIn, signOut, state } from "./live.js";
import { Cluster } from "./cluster.js";
import { Consumers } from "./consumers.js";
import { Failovers } from "./failovers.js";
import { Messages } from "./messages.js";
import { Overview } from "./overview.js";
import { Rates } from "./rates.js";
import { Reports } from "./reports.js";
import { Stuck } from "./stuck.js";
import { Topics } from "./topics.js";
import { span } from "./words.js";

const PAGES = [
  ["", "Overview", Overview],
  ["cluster", "Cluster", Cluster],
  ["topics", "Topics", Topics],
  ["consumers", "Consumers", Consumers],
  ["messages", "Messages", Messages],
  ["waiting", "Waiting", Stuck],
  ["failovers", "Failovers", Failovers],
  ["rates", "Rates", Rates],
  ["reports", "Reports", Reports],
];
const THEME = "understudy-theme";

function place() {
  const [name, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { name, fields: Object.fromEntries(new URLSearchParams(search)) };
}

function applyTheme(theme) {
  if (theme === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
}

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem(THEME) || "system");
  return html`<label class="theme"><span class="sr">Colours</span>
    <select value=${theme} onChange=${(event) => {
      localStorage.setItem(THEME, event.target.value);
      applyTheme(event.target.value);
      setTheme(event.target.value);
    }}>${["system", "light", "dark"].map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>`;
}

function SignIn() {
  const [open, setOpen] = useState(false);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const session = state.session;
  if (!session || (!session.token && !session.closed)) return html`<span class="quiet">read-only</span>`;
  if (session.signedIn) {
    return html`${session.user && html`<span class="where">${session.user}</span>`}
      <button type="button" onClick=${signOut}>Sign out</button>`;
  }
  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      await signIn(Object.fromEntries(new FormData(event.target)));
      setOpen(false);
    } catch (failed) {
      setError(failed.message);
    }
    setBusy(false);
  }
  if (!open && !session.closed) return html`<button type="button" onClick=${() => setOpen(true)}>Sign in</button>`;
  return html`<form class="signin" onSubmit=${submit}>
    ${session.users ? html`<label>User <input name="user" autocomplete="username" spellcheck="false" required /></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" required /></label>`
      : html`<label>Token <input name="token" type="password" autocomplete="off" required /></label>`}
    <button type="submit" disabled=${busy}>Sign in</button>${error && html`<span role="alert">${error}</span>`}</form>`;
}

function App() {
  const [, draw] = useState(0);
  const [where, setWhere] = useState(place());
  const [now, setNow] = useState(Date.now());
  const heading = useRef(null);
  useEffect(() => onChange(() => draw((number) => number + 1)), []);
  useEffect(() => {
    const moved = () => { setWhere(place()); window.scrollTo(0, 0); heading.current?.focus(); };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => {
    const timer = setInterval(() => { if (!state.connected) setNow(Date.now()); }, 1000);
    return () => clearInterval(timer);
  }, []);
  const [name, title, Page] = PAGES.find(([each]) => each === where.name) || PAGES[0];
  useEffect(() => { document.title = `${title} · Understudy`; }, [title]);
  const closed = state.session && state.session.closed && !state.session.signedIn;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); heading.current?.focus(); }}>To the content</a>
    <header>
      <strong>Understudy</strong>
      <span class="where">${state.session ? state.session.nameServers : ""}</span>
      <span class="right"><${SignIn} /><${Theme} /></span>
      ${PAGES.length > 1 && html`<nav aria-label="Pages">${PAGES.map(([each, text]) => html`
        <a key=${each} href=${`#/${each}`} aria-current=${each === name ? "page" : undefined}>${text}</a>`)}</nav>`}
    </header>
    ${state.lostAt !== null && !state.connected && !closed && html`<p class="lost" role="alert">
      ${state.refused ? `The console says: ${state.refused}.` : `The console does not answer since ${span(now - state.lostAt)}.`}
      ${" "}What is shown is as old as ${span(now - state.lostAt)}.</p>`}
    <main id="main"><h1 tabindex="-1" ref=${heading}>${title}</h1>
      ${closed ? html`<p>Sign in to see the cluster.</p>`
        : state.view ? html`<${Page} state=${state} fields=${where.fields} />`
        : html`<p class="quiet" role="status">Asking the cluster…</p>`}
    </main>`;
}

applyTheme(localStorage.getItem(THEME) || "system");
render(html`<${App} />`, document.getElementById("page"));
loadSession().then(follow);
