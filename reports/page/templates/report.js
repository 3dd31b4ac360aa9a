"use strict";
// Opens folded blocks that links lead to, sorts the verdicts, copies commands, reads curves. All is there without it.
function reveal() {
  let block = document.getElementById(location.hash.slice(1));
  const target = block;
  for (; block; block = block.parentElement) if (block.tagName === "DETAILS") block.open = true;
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", reveal);
for (const link of document.querySelectorAll('a[href^="#"]'))
  link.addEventListener("click", () => { if (link.hash === location.hash) reveal(); });
reveal();

function value(text) {
  const found = text.replace(/\u2212/g, "-").replace(/\u202f/g, "").match(/-?\d+(\.\d+)?/);
  const sign = text.startsWith("shrinks") ? -1 : 1;
  return text === "unchanged" ? 0 : found ? sign * Number(found[0]) : NaN;
}

function sort(table, column, head) {
  const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const rows = [...table.tBodies[0].rows].map((row) => [row, row.cells[column].textContent.trim()]);
  rows.sort(([, a], [, b]) => {
    if (!head.classList.contains("num")) return sign * a.localeCompare(b);
    const [x, y] = [value(a), value(b)];
    return Number.isNaN(x) - Number.isNaN(y) || sign * (x - y) || 0; // what has no number stays below
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  table.tBodies[0].append(...rows.map(([row]) => row));
}

for (const table of document.querySelectorAll(".verdicts")) {
  if (table.tBodies[0].rows.length < 3) continue;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(table, column, head));
    head.append(button);
  });
}

for (const command of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.querySelector("code").textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(command.querySelector("code"));
    }
  });
  command.prepend(button);
}

const shown = (number) => {
  const size = Math.abs(number);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? number.toExponential(2) : String(Number(number.toPrecision(3)));
};

for (const drawing of document.querySelectorAll("svg.figure")) {
  const label = document.createElementNS("http://www.w3.org/2000/svg", "text");
  label.setAttribute("class", "under");
  let points = null;
  drawing.addEventListener("pointerleave", () => label.remove());
  drawing.addEventListener("pointermove", (event) => {
    points ??= [...drawing.querySelectorAll("[data-curve]")].flatMap((curve) =>
      [...curve.querySelectorAll("path")].flatMap((path) =>
        [...(path.getAttribute("d") || "").matchAll(/[ML] ?(-?[\d.]+) (-?[\d.]+)/g)].map(([, a, b]) => [Number(a), Number(b), curve])));
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
    let best = null, least = 300;
    for (const point of points) {
      const far = (point[0] - at.x) ** 2 + (point[1] - at.y) ** 2;
      if (far < least) [best, least] = [point, far];
    }
    label.remove();
    if (!best) return;
    const [left, top, right, bottom, x0, x1, xs, y0, y1, ys] = best[2].dataset.axes.split(" ");
    const back = (share, low, high, scale) => scale === "log" ? low * (high / low) ** share : +low + share * (high - low);
    const x = back((best[0] - left) / (right - left), x0, x1, xs), y = back((bottom - best[1]) / (bottom - top), y0, y1, ys);
    label.textContent = `${best[2].dataset.curve}: ${shown(x)}, ${shown(y)}`;
    label.setAttribute("x", best[0] + 4);
    label.setAttribute("y", Math.max(best[1] - 6, 12));
    if (best[0] > drawing.viewBox.baseVal.width / 2) { label.setAttribute("text-anchor", "end"); label.setAttribute("x", best[0] - 4); } else label.removeAttribute("text-anchor");
    drawing.append(label);
  });
}
