// The view of the last hour: how long changes took, and how many there were.

import { ask } from "./ask.js";
import { bars, line, lineKey, quantile } from "./charts.js";
import { h, replace, setText } from "./dom.js";
import { clock, count, rate, seconds } from "./format.js";

const histograms = [
  ["delays", "From the datastore's event to the FIB",
    "from an event of the datastore until the data plane had acknowledged all it changed"],
  ["decide", "Deciding", "from what was received to the decision"],
  ["wait", "Waiting", "from the decision until the data plane was asked"],
  ["answer", "The data plane's answer", "from the question until the batch was answered"],
];

const charts = [
  ["Routes programmed", "per second", [["put", "put"], ["deleted", "deleted"],
    ["refused", "refused"]]],
  ["UPDATE messages", "per second", [["updatesReceived", "received"], ["updatesSent", "sent"]]],
  ["Sessions", "", [["established", "up"], ["peers", "configured"]]],
  ["Routes", "", [["programmed", "programmed"], ["desired", "desired"]]],
  ["Queued operations", "", [["opsQueued", "queued"]]],
];

export function ratesView(app) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const steps = h("div", { class: "columns" });
  const rates = h("div", { class: "columns" });
  const since = h("p", { class: "note" });
  const root = h("div", {}, problem,
    h("h2", { class: "above" }, "How long changes took"), since, steps,
    h("h2", { class: "above" }, "The last hour"), rates);
  let open = new Set(); // the charts whose tables are open
  let asking = false;

  async function update() {
    if (asking) return;
    asking = true;
    const got = await ask("/page/rates");
    asking = false;
    problem.hidden = !got.problem;
    setText(problem, got.problem ?? "");
    if (got.problem || steps.firstChild && !root.isConnected) return;
    const focused = root.contains(document.activeElement) ?
      document.activeElement.closest("details")?.dataset.name : null;
    open = new Set([...root.querySelectorAll("details[open]")].map((d) => d.dataset.name));
    setText(since, `Changes since ${clock(got.since, app.now())}.`);
    replace(steps, histograms.map(([name, title, what]) =>
      histogram(name, title, what, got[name])));
    replace(rates, charts.map(([title, unit, lines]) => chart(title, unit, lines, got)));
    if (focused) {
      [...root.querySelectorAll("details")].find((d) => d.dataset.name === focused)
        ?.firstChild.focus();
    }
    app.painted("rates");
  }

  function histogram(name, title, what, d) {
    const all = d.counts.reduce((sum, n) => sum + n, 0);
    const longest = seconds(d.bounds[d.bounds.length - 1]);
    const label = (i) => i < d.bounds.length ? `≤ ${seconds(d.bounds[i])}` : `> ${longest}`;
    const within = (share) => {
      const q = quantile(d, share);
      return q === Infinity ? `longer than ${longest}` : `within ${seconds(q)}`;
    };
    const says = all === 0 ? "nothing was measured" :
      `${count(all)} measured, half ${within(0.5)}, 99% ${within(0.99)}`;
    return figure(name, title, says, what, all === 0 ? null : bars(d, label(0),
      label(d.counts.length - 1), `${title}: ${says}`), ["Took", "Changes"],
    () => d.counts.map((n, i) => [label(i), count(n)]));
  }

  function chart(title, unit, lines, got) {
    const last = (key) => got[key]?.[got[key].length - 1] ?? 0;
    const most = (key) => (got[key] ?? []).reduce((m, v) => Math.max(m, v), 0);
    const shown = unit ? rate : count;
    const each = lines.map(([key, name]) => `${name} ${shown(last(key))}` +
      (unit ? ` (most ${shown(most(key))})` : ""));
    const says = each.join(", ") + (unit ? ` ${unit}` : "");
    const keys = each.map((text, i) => h("span", { class: "key" }, lineKey(i), text));
    const drawing = line(got.at, lines.map(([key]) => got[key] ?? []), `${title}: ${says}`);
    const head = ["At", ...lines.map(([, name]) => name)];
    return figure(title, unit ? `${title}, ${unit}` : title, keys, "", drawing, head, () =>
      got.at.map((at, i) => [clock(at, app.now()),
        ...lines.map(([key]) => shown(got[key][i]))]).reverse().filter((_, i) => i % 6 === 0));
  }

  // figure has a drawing and, for who asks, the numbers in a table, which is made only then.
  function figure(name, title, says, what, drawing, head, rows) {
    const numbers = h("div");
    const fill = () => {
      if (!numbers.firstChild) {
        numbers.append(h("table", {}, h("thead", {}, h("tr", {}, ...head.map((t, i) =>
          h("th", { scope: "col", class: i ? "num" : null }, t)))), h("tbody", {},
          ...rows().map((cells) => h("tr", {}, ...cells.map((c, i) =>
            h("td", { class: i ? "num" : null }, c)))))));
      }
    };
    if (open.has(name)) fill();
    return h("section", { class: "card" }, h("h3", {}, title), h("p", {}, ...[says].flat()),
      what ? h("p", { class: "note" }, what) : null, drawing,
      h("details", { "data-name": name, open: open.has(name), toggle: fill },
        h("summary", {}, "Numbers", h("span", { class: "hidden" }, ` of ${title}`)), numbers));
  }

  update();
  return {
    root,
    waits: true,
    tick() {
      if (!document.hidden) update();
    },
  };
}
