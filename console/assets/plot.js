// A line over time, drawn as SVG: gaps where nothing is known, values under the pointer or the arrow keys.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { clock, span } from "./words.js";

const HEIGHT = 132, LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 20;

// The next of 1, 2, 5, 10, 20 ... at or above a value.
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 5, 10]) if (value <= step * power * 1.0001) return step * power;
  return value;
}

export function path(points, x, y) {
  let text = "", open = false;
  for (const [at, value] of points) {
    if (value === null || value === undefined) { open = false; continue; }
    text += `${open ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    open = true;
  }
  return text;
}

// Ten minutes, or what there is of them.
export function reach(points) {
  const known = points.length ? points[points.length - 1][0] - points[0][0] : 0;
  return Math.max(60000, Math.min(600000, known));
}

export function Plot({ title, points, word, kind = "a" }) {
  const box = useRef(null);
  const [width, setWidth] = useState(480);
  const [at, setAt] = useState(null);
  useLayoutEffect(() => setWidth(box.current.clientWidth || 480), []);
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(box.current ? box.current.clientWidth : 480));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);

  const end = points.length ? points[points.length - 1][0] : Date.now();
  const spanMs = reach(points);
  const begin = end - spanMs;
  const shown = points.filter(([time]) => time >= begin);
  const known = shown.filter(([, value]) => value !== null && value !== undefined);
  const top = ceiling(Math.max(0, ...known.map(([, value]) => value)));
  const x = (time) => LEFT + ((time - begin) / spanMs) * (width - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
  const newest = known.length ? known[known.length - 1] : null;
  const picked = at === null || !known.length ? null : known[Math.min(at, known.length - 1)];
  const told = picked || newest;

  function pick(event) {
    if (!known.length) return;
    const time = begin + ((event.offsetX - LEFT) / (width - LEFT - RIGHT)) * spanMs;
    let best = 0;
    known.forEach(([each], index) => { if (Math.abs(each - time) < Math.abs(known[best][0] - time)) best = index; });
    setAt(best);
  }
  function step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined || !known.length) return;
    event.preventDefault();
    setAt(Math.max(0, Math.min(known.length - 1, (at ?? known.length - 1) + by)));
  }

  const label = newest
    ? `${title}: ${word(newest[1])} now, at most ${word(Math.max(...known.map(([, value]) => value)))} in ${span(spanMs)}`
    : `${title}: nothing known yet`;
  return html`
    <figure class="plot" ref=${box}>
      <figcaption><span>${title}</span>
        <output>${told ? word(told[1]) : "–"}${picked ? html`<small> at ${clock(picked[0])}</small>` : ""}</output>
      </figcaption>
      <svg width=${width} height=${HEIGHT} role="img" aria-label=${label} tabindex="0"
           onMouseMove=${pick} onMouseLeave=${() => setAt(null)} onKeyDown=${step} onBlur=${() => setAt(null)}>
        ${[0, 0.5, 1].map((part) => html`
          <line class="grid" x1=${LEFT} x2=${width - RIGHT} y1=${y(top * part)} y2=${y(top * part)} />
          <text class="tick" x=${LEFT - 8} y=${y(top * part) + 4} text-anchor="end">${word(top * part)}</text>`)}
        ${[0, 0.5, 1].map((part) => html`
          <text class="tick" x=${LEFT + part * (width - LEFT - RIGHT)} y=${HEIGHT - 4}
                text-anchor=${["start", "middle", "end"][part * 2]}>${clock(begin + part * spanMs)}</text>`)}
        <path class="line ${kind}" d=${path(shown, x, y)} />
        ${picked && html`
          <line class="cross" x1=${x(picked[0])} x2=${x(picked[0])} y1=${TOP} y2=${HEIGHT - BOTTOM} />
          <circle class="dot ${kind}" cx=${x(picked[0])} cy=${y(picked[1])} r="3" />`}
      </svg>
    </figure>`;
}
