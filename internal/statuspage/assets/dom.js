// Elements. Texts become text nodes, never markup: names come from other nodes.

import { shapes } from "./layout.js";
import { kindNames } from "./state.js";

// h makes an element with attributes and children; a function among the attributes listens to the
// event of its name, and what is null or false is left out.
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

const svgNamespace = "http://www.w3.org/2000/svg";

// s makes an element of SVG.
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(svgNamespace, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

// setText changes a text only if it differs, so that nothing is announced or drawn in vain.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// mark is the small shape of a kind of session, or of "ok", "warn", "bad" and "idle".
export function mark(kind) {
  const shape = { ok: "up", warn: "handshake", bad: "down", idle: "receiving" }[kind] ?? kind;
  return s("svg", { class: `mark ${kind}`, viewBox: "0 0 14 14", "aria-hidden": "true" },
    s("path", { d: shapes[shape](7, 7, 5), "fill-rule": "evenodd" }));
}

// kindLabel is the mark of a session's kind with its name.
export function kindLabel(kind, text = kindNames[kind]) {
  return h("span", { class: "kind" }, mark(kind), text);
}

// replace puts children in the place of those that are there.
export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter(Boolean));
}

// table has names of columns, each perhaps with a class, and rows of texts or elements; null
// without rows.
export function table(head, rows) {
  if (rows.length === 0) return null;
  return h("table", {},
    h("thead", {}, h("tr", {}, ...head.map(([name, kind]) =>
      h("th", { scope: "col", class: kind }, name)))),
    h("tbody", {}, ...rows.map((cells) => h("tr", {}, ...cells.map((c, i) =>
      h("td", { class: head[i][1] }, c ?? ""))))));
}

// facts is a list of names and values, without those that are absent.
export function facts(all) {
  const there = all.filter(([, v]) => v !== undefined && v !== null && v !== "" && v !== false);
  if (there.length === 0) return null;
  return h("dl", {}, ...there.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]));
}
