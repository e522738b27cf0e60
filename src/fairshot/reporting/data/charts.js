"use strict";
// Line charts of the methods that are shown: axes, labels and leaders are computed anew when one is hidden.
// Without this the page shows the same figures as they were drawn for print.

const NAMESPACE = "http://www.w3.org/2000/svg";
const NARROW = 440; // pixels; below, lines have no labels at their ends: the ticks above name them
const LABEL_GAP = 12.5;
const LABEL_X = 15; // from the axes to the labels
const LABEL_SHARE = 0.45; // of a figure's width that labels may take; longer ones have several rows
const ruler = document.createElement("canvas").getContext("2d");
let charts = 0;

function draw(name, attributes, parent, text) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function ticks(low, high, most) {
  const step = [0.5, 1, 2, 5, 10, 20, 25, 50].find((each) => (high - low) / each <= most) || 100;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + 1e-9; at += step) found.push(at);
  return found;
}

function extent(values) {
  return [Math.min(...values), Math.max(...values)];
}

function padded([low, high], share) {
  const more = Math.max(share * (high - low), 1);
  return [Math.max(0, low - more), Math.min(100, high + more)];
}

// The range of our lines, and of published ones unless they are beyond `far` times that range.
function robust(lines, far) {
  const ours = lines.filter((line) => !line.published).flatMap((line) => line.points.map((point) => point[1]));
  const all = lines.flatMap((line) => line.points.map((point) => point[1]));
  if (!ours.length || !all.length) return padded(extent(all.length ? all : [0, 100]), 0.06);
  const [low, high] = extent(ours);
  const reach = far * (high - low);
  return padded(extent([low, high, ...all.filter((value) => value > low - reach && value < high + reach)]), 0.06);
}

// Middles of labels of so many rows, each as near to where its line ends as the gap between two rows allows.
function spread(wanted, rows, low, high) {
  const places = [...wanted];
  const apart = (i) => ((rows[i] + rows[i + 1]) / 2) * LABEL_GAP;
  const over = (i) => ((rows[i] - 1) / 2) * LABEL_GAP; // from the middle of a label to that of its last row
  for (let i = 0; i < places.length; i++) places[i] = Math.max(places[i], i ? places[i - 1] + apart(i - 1) : low + over(i));
  for (let i = places.length - 1; i >= 0; i--) {
    places[i] = Math.min(places[i], i < places.length - 1 ? places[i + 1] - apart(i) : high - over(i));
  }
  return places;
}

function frame(svg, box, options) {
  const [left, right] = options.x;
  const [low, high] = options.y;
  const x = (value) => box.x + ((value - left) / (right - left || 1)) * box.w;
  const y = (value) => box.y + box.h - ((value - low) / (high - low || 1)) * box.h;
  for (const at of ticks(low, high, Math.max(3, box.h / 45))) {
    draw("path", { d: `M${box.x} ${y(at)}h${box.w}`, stroke: "var(--grid)" }, svg);
    draw("text", { x: box.x - 7, y: y(at) + 4, "text-anchor": "end" }, svg, at);
  }
  for (const at of options.whole ? options.whole : ticks(left, right, Math.max(3, box.w / 60))) {
    draw("text", { x: x(at), y: box.y + box.h + 17, "text-anchor": "middle" }, svg, at);
  }
  draw("path", { d: `M${box.x} ${box.y}v${box.h}h${box.w}`, stroke: "var(--muted)", fill: "none" }, svg);
  const middle = box.y + box.h / 2;
  const turned = { transform: `rotate(-90 ${box.x - 36} ${middle})`, "text-anchor": "middle" };
  draw("text", { x: box.x - 36, y: middle, ...turned }, svg, options.yLabel);
  draw("text", { x: box.x + box.w / 2, y: box.y + box.h + 34, "text-anchor": "middle" }, svg, options.xLabel);
  if (options.title) draw("text", { x: box.x, y: box.y - 9, class: "title" }, svg, options.title);
  return { x, y };
}

function plot(svg, box, lines, options) {
  const { x, y } = frame(svg, box, options);
  const clip = `chart-clip-${charts++}`;
  const area = { x: box.x - 6, y: box.y - 6, width: box.w + 12, height: box.h + 12 };
  draw("rect", area, draw("clipPath", { id: clip }, svg));
  if (options.harmonic) harmonicMeans(svg, box, clip, x, y, options);
  for (const line of lines) {
    const group = draw("g", { "data-method": line.id, "clip-path": `url(#${clip})` }, svg);
    const stroke = { stroke: line.colour, "stroke-width": line.width, "stroke-dasharray": line.dash };
    const shape = draw("path", { d: pathOf(line.points, x, y), fill: "none", opacity: line.published ? 0.55 : 1, ...stroke }, group);
    draw("title", {}, shape, line.label);
    line.points.forEach(([a, b], i) => {
      if (!line.marker) return;
      const size = options.harmonic && i === line.points.length - 1 ? 1.35 : 0.6;
      const at = `translate(${x(a).toFixed(1)} ${y(b).toFixed(1)}) scale(${size})`;
      const mark = draw("polygon", { points: line.marker, fill: line.colour, transform: at }, group);
      draw("title", {}, mark, `${line.label}: ${b.toFixed(2)} %`);
    });
  }
  if (options.labels) labelEnds(svg, box, lines, x, y, options);
}

function pathOf(points, x, y) {
  return points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
}

function labelEnds(svg, box, lines, x, y, options) {
  const floor = box.y + box.h;
  const ends = lines
    .filter((line) => line.points.length)
    .map((line) => ({ line, at: line.points[line.points.length - 1] }))
    .map(({ line, at }) => ({ line, at, wanted: Math.min(Math.max(y(at[1]), box.y), floor), below: y(at[1]) > floor + 1 }))
    .sort((a, b) => a.wanted - b.wanted);
  for (const end of ends) {
    const value = options.harmonic ? "" : ` ${end.at[1].toFixed(1)}`;
    end.rows = rowsOf(`${end.below ? "▾ " : ""}${end.line.label}${value}`, end.line, options.labels);
  }
  const places = spread(ends.map((end) => end.wanted), ends.map((end) => end.rows.length), box.y, floor + 6);
  ends.forEach((end, i) => {
    const { line } = end;
    const group = draw("g", { "data-method": line.id, class: "end" }, svg);
    const from = Math.min(x(end.at[0]) + 5, box.x + box.w);
    if (Math.abs(places[i] - end.wanted) > 3 || box.x + box.w - from > 8) {
      const leader = `M${from} ${end.wanted}L${box.x + box.w + 12} ${places[i]}`;
      draw("path", { d: leader, stroke: line.colour, "stroke-width": 0.7, opacity: 0.6, class: "leader" }, group);
    }
    const look = { ...fontOf(line), fill: line.colour, class: end.below ? "clipped" : "" };
    const text = draw("text", look, group);
    end.rows.forEach((row, j) => {
      const at = { x: box.x + box.w + LABEL_X, y: places[i] + 4 + (j - (end.rows.length - 1) / 2) * LABEL_GAP };
      draw("tspan", at, text, j < end.rows.length - 1 ? `${row} ` : row);
    });
  });
}

function harmonicMeans(svg, box, clip, x, y, options) {
  const group = draw("g", { "clip-path": `url(#${clip})` }, svg);
  for (let level = 10; level < 100; level += 10) {
    const points = [];
    for (let base = options.x[0]; base <= options.x[1]; base += (options.x[1] - options.x[0]) / 80) {
      if (2 * base > level + 1) points.push([base, (level * base) / (2 * base - level)]);
    }
    const shown = points.filter(([, novel]) => novel >= options.y[0] && novel <= options.y[1]);
    if (shown.length < 2) continue;
    draw("path", { d: pathOf(shown, x, y), fill: "none", stroke: "var(--grid)", "stroke-width": 1.6 }, group);
    const [a, b] = shown[0]; // the name stands on its curve, inside the axes
    const place = { x: Math.min(x(a) + 5, box.x + box.w - 58), y: Math.min(Math.max(y(b) + 4, box.y + 10), box.y + box.h - 5) };
    draw("text", { ...place, fill: "var(--muted)", "font-size": 10, class: "level" }, group, `harmonic ${level}`);
  }
  const [low, high] = [Math.max(options.x[0], options.y[0]), Math.min(options.x[1], options.y[1])];
  const diagonal = { stroke: "var(--muted)", "stroke-dasharray": "6 4", opacity: 0.6 };
  if (low < high) draw("path", { d: `M${x(low)} ${y(low)}L${x(high)} ${y(high)}`, ...diagonal }, group);
}

function lineOf(id, method, values) {
  const points = values.map((value, i) => [i, value]).filter(([, value]) => value !== null);
  const { label, colour, dash, marker, width } = method;
  return { id, label, points, colour, dash, marker, width };
}

function fontOf(line) {
  return { "font-size": line.published ? 10 : 12, "font-weight": line.width > 2 ? 700 : 400 };
}

// Pixels that a text beside a line takes in the font of the page.
function widthOf(text, line) {
  const font = fontOf(line);
  ruler.font = `${font["font-weight"]} ${font["font-size"]}px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

// The rows of a label, broken between words; its mark and its value stay with the words beside them.
function rowsOf(text, line, most) {
  const rows = [];
  for (const word of text.match(/(?:▾ )?\S+(?: [\d.]+$)?/g)) {
    const longer = rows.length ? `${rows[rows.length - 1]} ${word}` : "";
    if (longer && widthOf(longer, line) <= most) rows[rows.length - 1] = longer;
    else rows.push(word);
  }
  return rows;
}

// Room for labels with mark and value: pixels right of the axes, all rows, and the width of the longest.
function room(lines, width) {
  if (width < NARROW) return { right: 8, rows: lines.length, labels: 0 };
  const most = LABEL_SHARE * width - LABEL_X - 4;
  const widths = lines.flatMap((line) => rowsOf(`▾ ${line.label} 00.0`, line, most).map((row) => widthOf(row, line)));
  const labels = Math.max(...widths, 40);
  return { right: labels + LABEL_X + 4, rows: widths.length, labels };
}

const KINDS = {
  overall(svg, width, data, shown) {
    const published = shown.has("published") ? data.published : [];
    const thin = { colour: "var(--muted)", dash: "none", width: 1, marker: "" };
    const lines = published.map((row) => ({ ...lineOf("published", { ...thin, label: row.label }, row.overall), published: true }));
    lines.push(...data.methods.filter((one) => shown.has(one.id)).map((one) => lineOf(one.id, one, one.overall)));
    const { right, rows, labels } = room(lines, width);
    const height = Math.max(330, Math.min(620, 90 + LABEL_GAP * rows));
    const box = { x: 48, y: 12, w: width - 48 - right, h: height - 58 };
    const whole = [...Array(data.sessions).keys()];
    const options = { x: [0, Math.max(1, data.sessions - 1)], y: robust(lines, data.far), whole, labels };
    plot(svg, box, lines, { ...options, xLabel: "session", yLabel: "overall accuracy (%)" });
    return height;
  },
  "trade-off"(svg, width, data, shown) {
    const lines = data.methods.filter((one) => shown.has(one.id)).map((one) => ({
      ...lineOf(one.id, one, []),
      points: one.inc.map((novel, t) => [one.base[t], novel]).filter(([, novel]) => novel !== null),
    }));
    const points = lines.flatMap((line) => line.points);
    const { right, rows, labels } = room(lines, width);
    const height = Math.max(360, Math.min(520, 90 + LABEL_GAP * rows));
    const box = { x: 48, y: 12, w: width - 48 - right, h: height - 58 };
    const range = (i) => (points.length ? padded(extent(points.map((point) => point[i])), 0.08) : [0, 100]);
    const titles = { xLabel: "base accuracy (%)", yLabel: "novel accuracy (%)" };
    plot(svg, box, lines, { x: range(0), y: range(1), harmonic: true, labels, ...titles });
    return height;
  },
  imbalance(svg, width, data, shown) {
    const titles = { base: "Base classes", inc: "Novel classes", cinc: "Current novel classes", pinc: "Past novel classes" };
    const methods = data.methods.filter((one) => shown.has(one.id));
    const columns = width < NARROW ? 1 : 2;
    const [w, h] = [(width - columns * 60) / columns, 210];
    const values = methods.flatMap((one) => Object.keys(titles).flatMap((key) => one[key])).filter((one) => one !== null);
    const y = values.length ? padded(extent(values), 0.06) : [0, 100];
    const whole = [...Array(data.sessions).keys()];
    Object.entries(titles).forEach(([key, title], i) => {
      const box = { x: 48 + (i % columns) * (w + 60), y: 30 + Math.floor(i / columns) * (h + 84), w, h };
      const lines = methods.map((one) => lineOf(one.id, one, one[key]));
      const labels = { title, xLabel: "session", yLabel: "accuracy (%)" };
      plot(svg, box, lines, { x: [0, Math.max(1, data.sessions - 1)], y, whole, ...labels });
    });
    return (h + 84) * (4 / columns);
  },
};

// The line under the pointer stands out, in all panels of a figure and in its label.
function light(svg, method) {
  for (const line of svg.querySelectorAll("g[data-method]")) line.classList.toggle("lit", line.dataset.method === method);
}

function drawCharts(benchmark, shown) {
  const data = JSON.parse(benchmark.querySelector("script.curves").textContent);
  for (const figure of benchmark.querySelectorAll("[data-chart]")) {
    const host = figure.querySelector(".scroll");
    const width = Math.floor(host.clientWidth);
    if (!width) continue;
    const before = host.querySelector("svg");
    const svg = document.createElementNS(NAMESPACE, "svg");
    svg.setAttribute("role", "img");
    svg.setAttribute("class", "chart");
    svg.setAttribute("aria-label", before ? before.getAttribute("aria-label") : "");
    const height = KINDS[figure.dataset.chart](svg, width, data, shown);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    for (const line of svg.querySelectorAll("g[data-method]")) {
      line.addEventListener("pointerenter", () => light(svg, line.dataset.method));
    }
    host.replaceChildren(svg);
  }
}
