// Small pieces that several pages share. Text goes through templates only, so nothing of a cluster becomes markup.

import { html } from "./vendor/htm-preact.js";
import { clock, offset, span, when } from "./words.js";

const STATES = {
  ok: "led", master: "master", acting: "slave acts", none: "no master", unknown: "unknown",
};

// A state as a shape and a word: colour alone says nothing to many eyes.
export function State({ state, word }) {
  return html`<span class="state ${state}"><svg viewBox="0 0 12 12" aria-hidden="true">
    ${state === "none" ? html`<path d="M2.5 2.5l7 7m0-7l-7 7" />`
      : state === "acting" ? html`<circle cx="6" cy="6" r="4.5" /><path class="half" d="M6 1.5a4.5 4.5 0 0 1 0 9z" />`
      : state === "unknown" ? html`<circle cx="6" cy="6" r="4.5" stroke-dasharray="2 2" />`
      : html`<circle class="full" cx="6" cy="6" r="4.5" />`}
  </svg>${word ?? STATES[state] ?? state}</span>`;
}

export function Since({ at, now, exact = true }) {
  if (!at) return "–";
  return html`<span title=${exact ? "as the broker tells" : "first seen so by this page"}>${
    exact ? "" : "≤ "}${when(at, now)} <small>${span(now - at)}</small></span>`;
}

export function Section({ title, note, children, id }) {
  return html`<section aria-labelledby=${id}>
    <h2 id=${id}>${title}${note ? html` <small>${note}</small>` : ""}</h2>${children}</section>`;
}

// The steps of a failover on one scale of time, each with its distance from the first.
export function Timeline({ failover, now }) {
  const steps = failover.steps;
  const begin = steps[0].at;
  const newest = Math.max(...steps.map((step) => step.at));
  const end = Math.max(failover.over ? newest : now, newest, begin + 1);
  const share = (at) => `${((at - begin) / (end - begin)) * 100}%`;
  return html`<div class="timeline">
    <p><b>${failover.group}</b> lost its master${failover.master ? html` <code>${failover.master}</code>` : ""}
      ${failover.acting ? html`; <code>${failover.acting}</code> ${failover.over ? "acted" : "acts"}` : "; nobody acts"}
      ${failover.over ? html`, over after ${span(end - begin)}` : html`, for ${span(end - begin)} now`}.
      ${failover.why ? html` <small>${failover.why}</small>` : ""}</p>
    <ol>${steps.map((step) => html`
      <li key=${step.step}><b>${step.step}</b><span class="text">${step.text}</span>
        <span class="figure">${step.at === begin ? "" : `+${offset(step.at - begin)}`}</span>
        <span class="figure"><time datetime=${new Date(step.at).toISOString()}>${clock(step.at, step.told)}</time></span>
        <small>${step.told ? "told by the broker" : "seen by this page"}</small>
        <svg class="reach" aria-hidden="true"><line x1="0" x2=${share(step.at)} y1="50%" y2="50%" />
          <circle class=${step.step.startsWith("R") ? "back" : ""} cx=${share(step.at)} cy="50%" r="3" /></svg></li>`)}
    </ol></div>`;
}
