"use strict";
// Sorting of tables and values under the pointer. Everything on the page is there without it.
const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻";
const UNITS = { ms: 1e-3, s: 1, min: 60, h: 3600 };

function value(text) {
  const plain = text.replace(/\u2212/g, "-").replace(/\u202f/g, "").replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]/g, (c) => "0123456789-"[RAISED.indexOf(c)]);
  const span = [...plain.matchAll(/([\d.]+) (ms|s|min|h)\b/g)];
  if (span.length) return span.reduce((sum, [, n, unit]) => sum + Number(n) * UNITS[unit], 0);
  const found = plain.replace(/×10(-?\d+)/, "e$1").match(/[-+]?\d+(\.\d+)?(e-?\d+)?/);
  return found ? Number(found[0]) : NaN;
}

function sort(table, column, head) {
  const down = head.getAttribute("aria-sort") === "ascending";
  const rows = [...table.tBodies[0].rows].map((row) => [row, row.cells[column].textContent]);
  const numeric = head.classList.contains("num");
  const sign = down ? -1 : 1;
  rows.sort(([, a], [, b]) => {
    if (!numeric) return sign * a.localeCompare(b);
    const [x, y] = [value(a), value(b)];
    return Number.isNaN(x) - Number.isNaN(y) || sign * (x - y) || 0; // what has no number stays below
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  table.tBodies[0].append(...rows.map(([row]) => row));
}

for (const table of document.querySelectorAll("table:not(.on-paper)")) {
  if (table.tBodies[0].rows.length < 3) continue;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...[...head.childNodes].filter((node) => !(node.classList && node.classList.contains("mark"))));
    button.addEventListener("click", () => sort(table, column, head));
    head.prepend(button);
  });
}

function shown(number) {
  const size = Math.abs(number);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? number.toExponential(2) : String(Number(number.toPrecision(3)));
}

for (const drawing of document.querySelectorAll("svg[data-axes]")) {
  const [left, top, right, bottom, x0, x1, xlog, y0, y1, ylog] = drawing.dataset.axes.split(" ").map(Number);
  const back = (share, low, high, log) => (log ? low * (high / low) ** share : low + share * (high - low));
  let points = null;
  const label = document.createElementNS("http://www.w3.org/2000/svg", "text");
  label.setAttribute("class", "under");
  drawing.append(label);
  drawing.addEventListener("pointerleave", () => { label.textContent = ""; });
  drawing.addEventListener("pointermove", (event) => {
    points ??= [...drawing.querySelectorAll("g path[fill=none]")].flatMap((path) =>
      [...path.getAttribute("d").matchAll(/[ML](-?[\d.]+) (-?[\d.]+)/g)].map(([, a, b]) => [Number(a), Number(b)]));
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
    let best = null, least = 400;
    for (const [a, b] of points) {
      const far = (a - at.x) ** 2 + (b - at.y) ** 2;
      if (far < least) [best, least] = [[a, b], far];
    }
    label.textContent = "";
    if (!best) return;
    const x = back((best[0] - left) / (right - left), x0, x1, xlog);
    const y = back((bottom - best[1]) / (bottom - top), y0, y1, ylog);
    label.textContent = `${shown(x)}, ${shown(y)}`;
    label.setAttribute("x", Math.min(best[0] + 4, right - 60));
    label.setAttribute("y", Math.max(best[1] - 6, top + 8));
  });
}
