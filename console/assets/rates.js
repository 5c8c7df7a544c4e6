// How much goes through: the whole cluster as plots, each broker that leads as figures.

import { html } from "./vendor/htm-preact.js";
import { Section } from "./parts.js";
import { Plot } from "./plot.js";
import { bytes, millis, percent, rate } from "./words.js";

export function Rates({ state }) {
  const { view, points } = state;
  const series = (index) => points.map((point) => [point[0], point[index]]);
  const leaders = view.groups.flatMap((group) => group.members.filter((each) => each.address === group.leader)
    .map((each) => ({ ...each, group: group.name })));
  return html`
    <div class="plots large">
      <${Plot} title="Messages in per second" points=${series(1)} word=${rate} kind="a" />
      <${Plot} title="Messages out per second" points=${series(2)} word=${rate} kind="b" />
      <${Plot} title="99 of 100 stored within, slowest broker" points=${series(3)} word=${millis} kind="c" />
    </div>
    <${Section} id="leaders" title="By broker that leads">
      <div class="wide"><table>
        <thead><tr><th scope="col">Broker group</th><th scope="col">Address</th><th scope="col" class="number">In/s</th>
          <th scope="col" class="number">Out/s</th><th scope="col" class="number">Log end</th><th scope="col" class="number">Disk</th></tr></thead>
        <tbody>${leaders.map((each) => html`<tr key=${each.address}><th scope="row">${each.group}</th><td><code>${each.address}</code></td>
          <td class="number">${rate(each.put)}</td><td class="number">${rate(each.got)}</td>
          <td class="number">${bytes(each.logEnd)}</td><td class="number">${percent(each.disk)}</td></tr>`)}</tbody>
      </table></div>
    <//>`;
}
