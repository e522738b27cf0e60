"use strict";
// Hide and show methods, sort tables, switch sessions and colours, copy commands. The page is whole without this.

function shownMethods(benchmark) {
  const boxes = [...benchmark.querySelectorAll("[data-toggle]")];
  return new Set(boxes.filter((box) => box.checked).map((box) => box.dataset.toggle));
}

function refresh(benchmark) {
  const shown = shownMethods(benchmark);
  for (const element of benchmark.querySelectorAll("[data-method]")) {
    if (!element.closest(".chart")) element.style.display = shown.has(element.dataset.method) ? "" : "none";
  }
  const methods = [...benchmark.querySelectorAll("[data-toggle^=method]")];
  benchmark.querySelector("[data-nothing]").hidden = methods.some((box) => box.checked);
  benchmark.querySelectorAll("table[data-table]").forEach(markBest);
  benchmark.querySelectorAll(".table").forEach(letterRemarks);
  drawCharts(benchmark, shown);
}

function shownRows(table) {
  return [...table.tBodies[0].rows].filter((row) => row.style.display !== "none");
}

function cost(value, goal) {
  return goal === "one" ? Math.abs(value - 1) : goal === "low" ? value : -value;
}

function valueOf(cell) {
  return "value" in cell.dataset ? Number(cell.dataset.value) : NaN;
}

// Bold is the best of what is shown and can be compared, as it reads with two digits.
function markBest(table) {
  const rows = shownRows(table).filter((row) => !("apart" in row.dataset));
  table.querySelectorAll("thead th[data-goal]").forEach((head) => {
    const cells = rows.map((row) => row.cells[head.cellIndex]);
    const given = cells.filter((cell) => "value" in cell.dataset);
    const found = given.filter((cell) => Number.isFinite(valueOf(cell)));
    const costs = found.map((cell) => cost(Number(valueOf(cell).toFixed(2)), head.dataset.goal));
    const best = Math.min(...costs);
    [...table.tBodies[0].rows].forEach((row) => row.cells[head.cellIndex].classList.remove("best"));
    if (given.length < 2 || head.dataset.goal === "none") return;
    found.forEach((cell, i) => cell.classList.toggle("best", Math.abs(costs[i] - best) < 1e-9));
  });
}

// Letters count the remarks of the rows that are shown, in their order: a to z, then aa to zz.
function letterRemarks(table) {
  const letters = new Map();
  for (const row of table.querySelectorAll("tbody tr")) {
    const mark = row.querySelector("sup[data-remarks]");
    if (!mark || row.style.display === "none") continue;
    const keys = mark.dataset.remarks.split(" ");
    for (const key of keys) {
      const count = letters.size;
      if (!letters.has(key)) letters.set(key, String.fromCharCode(97 + (count % 26)).repeat(1 + Math.floor(count / 26)));
    }
    mark.textContent = keys.map((key) => letters.get(key)).join(",");
  }
  const notes = [...table.querySelectorAll("[data-remark]")];
  for (const note of notes) {
    note.hidden = !letters.has(note.dataset.remark);
    note.querySelector("sup").textContent = letters.get(note.dataset.remark) || "";
  }
  const order = [...letters.keys()];
  notes.sort((a, b) => order.indexOf(a.dataset.remark) - order.indexOf(b.dataset.remark));
  notes.forEach((note) => note.parentNode.append(note));
}

function sortBy(head) {
  const table = head.closest("table");
  const body = table.tBodies[0];
  const again = head.getAttribute("aria-sort") === "descending";
  table.querySelectorAll("th[aria-sort]").forEach((each) => each.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", again ? "ascending" : "descending"); // descending: the best first
  const key = (row) => {
    const cell = row.cells[head.cellIndex];
    if (!("goal" in head.dataset)) return cell.textContent.trim().toLowerCase();
    const value = valueOf(cell);
    return Number.isNaN(value) ? NaN : cost(value, head.dataset.goal);
  };
  const compare = (a, b) => {
    const [one, other] = [key(a), key(b)];
    if (one !== one || other !== other) return (one !== one) - (other !== other); // rows without a value last
    return (one < other ? -1 : one > other ? 1 : 0) * (again ? -1 : 1);
  };
  body.append(...[...body.rows].sort(compare));
  letterRemarks(table.closest(".table"));
}

for (const button of document.querySelectorAll("button.sort")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}

for (const section of document.querySelectorAll("[data-switch]")) {
  const radios = [...section.querySelectorAll(":scope > fieldset input[type=radio]")];
  const views = [...section.querySelectorAll("[data-view]")].filter((view) => view.closest("[data-switch]") === section);
  const show = () => {
    const chosen = radios.find((radio) => radio.checked).value;
    views.forEach((view) => (view.hidden = view.dataset.view !== chosen));
  };
  radios.forEach((radio) => radio.addEventListener("change", show));
  show();
  const folds = [...section.querySelectorAll(".each")]; // one per session: unfolded in one, unfolded in all
  for (const fold of folds) {
    fold.addEventListener("toggle", () => folds.forEach((one) => (one.open = fold.open)));
  }
}

for (const benchmark of document.querySelectorAll("[data-benchmark]")) {
  benchmark.querySelectorAll("[data-toggle]").forEach((box) => box.addEventListener("change", () => refresh(benchmark)));
  for (const button of benchmark.querySelectorAll("[data-choose]")) {
    button.addEventListener("click", () => {
      benchmark.querySelectorAll("[data-toggle]").forEach((box) => (box.checked = button.dataset.choose === "all"));
      refresh(benchmark);
    });
  }
  refresh(benchmark); // a browser may remember what was unticked before a reload
  let width = benchmark.clientWidth;
  new ResizeObserver(() => {
    if (benchmark.clientWidth === width) return;
    width = benchmark.clientWidth;
    drawCharts(benchmark, shownMethods(benchmark));
  }).observe(benchmark);
  nameCells(benchmark);
}

// Over a confusion matrix: which class was answered with which, and how often.
function nameCells(benchmark) {
  const names = JSON.parse(benchmark.querySelector("script.curves").textContent).classes;
  for (const matrix of benchmark.querySelectorAll(".matrix")) {
    const tip = matrix.querySelector(".tip");
    const picture = matrix.querySelector("img");
    let pixels = null;
    matrix.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const size = picture.naturalWidth;
      const place = (at, start, length) => Math.min(size - 1, Math.max(0, Math.floor(((at - start) / length) * size)));
      const answered = place(event.clientX, box.left, box.width);
      const truth = place(event.clientY, box.top, box.height);
      pixels = pixels || readPixels(picture);
      const share = (pixels[4 * (truth * size + answered) + 3] / 255) ** 2; // the opacity is its root
      const of = names[matrix.dataset.classes];
      tip.textContent = `${of[truth]} → ${of[answered]}: ${(100 * share).toFixed(0)} %`;
      tip.style.left = `${Math.min(event.clientX - box.left, 0.55 * box.width)}px`;
      tip.style.top = `${event.clientY - box.top + 14}px`;
      tip.hidden = false;
    });
    matrix.addEventListener("pointerleave", () => (tip.hidden = true));
  }
}

function readPixels(picture) {
  const canvas = document.createElement("canvas");
  canvas.width = picture.naturalWidth;
  canvas.height = picture.naturalHeight;
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  return context.getImageData(0, 0, canvas.width, canvas.height).data;
}

// The bar above is as high as the methods need; a heading that is jumped to stands below it.
const bar = document.querySelector(".bar");
if (bar) {
  new ResizeObserver(() => {
    document.documentElement.style.scrollPaddingTop = `${bar.offsetHeight + 12}px`;
  }).observe(bar);
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
});

for (const button of document.querySelectorAll(".copy")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "copied";
    setTimeout(() => (button.textContent = "copy"), 1500);
  });
}

// What is folded up belongs on paper too.
const details = document.querySelectorAll("details");
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...details].filter((one) => !one.open);
  opened.forEach((one) => (one.open = true));
});
addEventListener("afterprint", () => opened.forEach((one) => (one.open = false)));
