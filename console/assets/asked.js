// What a page asked the server for: asked again now and then, and told when it cannot be had.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { query } from "./live.js";

export function useAsked(path, fields, everyMs = 5000) {
  const [found, setFound] = useState({ value: null, error: "" });
  const wanted = `${path}?${JSON.stringify(fields)}`;
  useEffect(() => {
    let timer = 0, left = false;
    async function again() {
      try {
        const value = await query(path, fields);
        if (!left) setFound({ value, error: "" });
      } catch (error) {
        if (!left) setFound((before) => ({ value: before.value, error: error.message }));
      }
      if (!left && everyMs) timer = setTimeout(again, everyMs);
    }
    setFound({ value: null, error: "" });
    again();
    return () => { left = true; clearTimeout(timer); };
  }, [wanted]);
  return found;
}

export function Asked({ found, children, whom = "the brokers" }) {
  return html`${found.error && html`<p class="trouble" role="alert">${found.error}</p>`}
    ${found.value ? children(found.value) : !found.error && html`<p class="quiet" role="status">Asking ${whom}…</p>`}`;
}

export function Missing({ names, what }) {
  return names && names.length ? html`<p class="unknown">Not told ${what}: ${names.join("; ")}.</p>` : null;
}
