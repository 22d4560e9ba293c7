// Drawings of numbers, as SVG. The geometry is pure.

import { s } from "./dom.js";
import { clock, rate } from "./format.js";

const width = 320;
const height = 100;
const head = 16; // for the name of the highest value
const foot = 18; // for names below
const room = height - head - foot;

// quantile is an upper bound of the time that a share of all stayed within; Infinity: it was longer
// than what is measured.
export function quantile(d, share) {
  const all = d.counts.reduce((sum, n) => sum + n, 0);
  let sum = 0;
  for (let i = 0; i < d.counts.length; i++) {
    sum += d.counts[i];
    if (sum >= all * share) return d.bounds[i] ?? Infinity;
  }
  return 0;
}

// barsOf are the rectangles of a histogram.
export function barsOf(counts) {
  const most = counts.reduce((m, n) => Math.max(m, n), 0);
  const step = width / counts.length;
  return counts.map((n, i) => {
    const tall = n === 0 ? 0 : Math.max(1, (n / most) * room);
    return { x: i * step + 1, y: height - foot - tall, width: Math.max(1, step - 2), height: tall };
  });
}

// pathOf is the line of values, most of which is at the top.
export function pathOf(values, most) {
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  return values.map((v, i) => {
    const y = head + room * (1 - v / (most || 1));
    return `${i ? "L" : "M"}${Math.round(i * step * 10) / 10} ${Math.round(y * 10) / 10}`;
  }).join("");
}

// bars draws a histogram, with the names of the first and the last bucket below.
export function bars(d, first, last, label) {
  return s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": label },
  ...barsOf(d.counts).map((b) => s("rect", b)),
  s("line", { class: "axis", x1: 0, x2: width, y1: height - foot, y2: height - foot }),
  s("text", { x: 0, y: height - 4 }, first),
  s("text", { x: width, y: height - 4, "text-anchor": "end" }, last));
}

// lineKey is a piece of the line of that number.
export function lineKey(i) {
  return s("svg", { class: "chart", viewBox: "0 0 24 8", "aria-hidden": "true" },
    s("path", { class: "line" + i, d: "M0 4H24" }));
}

// line draws values over time. The lines differ by their dashes as well.
export function line(at, lines, label) {
  const most = lines.flat().reduce((m, v) => Math.max(m, v), 0);
  const now = at[at.length - 1];
  return s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": label },
  s("line", { class: "axis", x1: 0, x2: width, y1: height - foot, y2: height - foot }),
  ...lines.map((values, i) => s("path", { class: "line" + i, d: pathOf(values, most) })),
  s("text", { x: 0, y: 11 }, rate(most)),
  at.length ? s("text", { x: 0, y: height - 4 }, clock(at[0], now)) : null,
  at.length ? s("text", { x: width, y: height - 4, "text-anchor": "end" }, clock(now, now)) : null);
}
