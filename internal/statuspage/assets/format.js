// Numbers and times as text. Pure.

const groups = new Intl.NumberFormat("en", { useGrouping: true });

// count shows 1234567 as 1 234 567, with spaces that do not break.
export function count(n) {
  return groups.format(n).replaceAll(",", "\u202f");
}

// plural is "1 route", "2 routes".
export function plural(n, one, many = one + "s") {
  return `${count(n)} ${n === 1 ? one : many}`;
}

// age shows how long ago a moment was, at times that are texts of JSON or milliseconds.
export function age(at, now) {
  if (!at) return "";
  let s = Math.max(0, Math.round((now - new Date(at).getTime()) / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} days`;
}

const two = (n) => String(n).padStart(2, "0");

// clock is the browser's local time of a moment, with the date if that is not today's.
export function clock(at, now) {
  const t = new Date(at);
  const time = `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
  if (t.toDateString() === new Date(now).toDateString()) return time;
  return `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${time}`;
}

// seconds shows a duration with the unit that fits.
export function seconds(s) {
  if (s < 0.001) return `${trim(s * 1e6)} µs`;
  if (s < 1) return `${trim(s * 1000)} ms`;
  if (s < 120) return `${trim(s)} s`;
  return `${trim(s / 60)} min`;
}

// rate shows a number per second.
export function rate(n) {
  return n >= 100 ? count(Math.round(n)) : trim(n);
}

function trim(n) {
  return String(n >= 100 ? Math.round(n) : Number(n.toPrecision(2)));
}
