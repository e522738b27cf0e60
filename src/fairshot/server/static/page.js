// The page of a store. It shows what the REST API returns; names are always set as text, never as HTML.
const SHOWN_BARS = 5;
const SHOWN_CLASSES = 200;
const SHOWN_EVENTS = 50;
const MOST_NAMES = 1000; // in the list of suggested class names
const MOST_CANDIDATES = 100;

const find = (selector, within = document) => within.querySelector(selector);
const findAll = (selector) => [...document.querySelectorAll(selector)];

function make(tag, kind = "", ...children) {
  const element = document.createElement(tag);
  element.className = kind;
  element.append(...children);
  return element;
}

const number = (value) => make("span", "number", value);

function label(text) {
  const element = make("span", "name", text);
  element.title = text;
  return element;
}

function bar(share, best) {
  const filled = make("span", best ? "bar best" : "bar");
  filled.style.width = `${100 * share}%`;
  return make("span", "track", filled);
}

// Calls of the API

async function call(path, content) {
  let options = {};
  if (content instanceof FormData) options = { method: "POST", body: content };
  else if (content) {
    options = { method: "POST", body: JSON.stringify(content), headers: { "content-type": "application/json" } };
  }
  let response;
  try {
    response = await fetch(`/api/${path}`, options);
  } catch {
    throw new Error("The server cannot be reached.");
  }
  const result = response.status === 204 ? null : await response.json().catch(() => null);
  if (!response.ok) throw new Error(result?.detail ?? `The server failed (${response.status}).`);
  return result;
}

function form(field, images, values = {}) {
  const content = new FormData();
  for (const image of images) content.append(field, image, image.name);
  for (const [name, value] of Object.entries(values)) content.append(name, value);
  return content;
}

const show = (where, ...elements) => find(where).replaceChildren(...elements);
const notice = (where, text) => show(where, make("div", "card", text));
const warning = (text) => make("div", "warning", text);

// Do something and show its result; if it fails, show why. Returns whether it was done.
async function attempt(where, action) {
  try {
    show(where, await action());
    return true;
  } catch (error) {
    show(where, warning(error.message));
    return false;
  }
}

function pictures(urls) {
  return make("span", "pictures", ...urls.map((url) => Object.assign(make("img"), { src: url, alt: "" })));
}

async function thumbnails(name, limit) {
  return pictures(await call(`thumbnails?name=${encodeURIComponent(name)}&limit=${limit}`));
}

// Do something on each click, but not again before it is done.
function onClick(button, action) {
  button?.addEventListener("click", async () => {
    if (button.ariaBusy === "true") return;
    button.ariaBusy = "true";
    try {
      await action();
    } finally {
      button.ariaBusy = "false";
    }
  });
}

// Images that a person gives: drawn, chosen, dropped, pasted or photographed

class ImageInput {
  constructor(element, changed) {
    this.element = element;
    this.changed = changed;
    this.images = [];
    this.multiple = find("input", element).multiple;
    this.canvas = find("canvas", element) && new Drawing(find("canvas", element));
    const input = find("input", element);
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = ""; // the same file may be chosen again
    });
    onClick(find(".remove", element), () => this.set([]));
    onClick(find(".clear", element), () => this.clear());
    onClick(find(".camera", element), () => this.openCamera());
    onClick(find(".capture", element), () => this.capture());
    if (!navigator.mediaDevices) find(".camera", element)?.remove(); // browsers have it on https or localhost
  }

  add(images) {
    if (!images.length) return;
    if (!this.multiple) this.canvas?.clear(); // one image at a time: the file, not the drawing
    this.set(this.multiple ? [...this.images, ...images] : images.slice(0, 1));
  }

  clear() {
    this.canvas.clear();
    if (!this.multiple) this.set([]);
  }

  set(images) {
    this.images = images;
    this.showImages(images);
    this.changed(images);
  }

  showImages(images) {
    const preview = find(".preview", this.element);
    for (const image of preview.querySelectorAll("img")) URL.revokeObjectURL(image.src);
    preview.replaceChildren(...images.map((image) => this.thumbnail(image)));
    const remove = find(".remove", this.element);
    if (remove) remove.hidden = !images.length;
  }

  thumbnail(image) {
    const picture = Object.assign(make("img"), { src: URL.createObjectURL(image), alt: image.name });
    if (!this.multiple) return picture;
    const button = make("button", "thumbnail", picture);
    button.title = `Remove ${image.name}`;
    button.addEventListener("click", () => this.set(this.images.filter((other) => other !== image)));
    return button;
  }

  async openCamera() {
    const video = find("video", this.element);
    if (video.srcObject) return this.closeCamera();
    try {
      video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch (error) {
      find(".camera", this.element).textContent = `No camera (${error.message})`;
      return;
    }
    await video.play();
    this.showCamera(true);
  }

  closeCamera() {
    const video = find("video", this.element);
    if (!video?.srcObject) return;
    for (const track of video.srcObject.getTracks()) track.stop();
    video.srcObject = null;
    this.showCamera(false);
  }

  showCamera(open) {
    find("video", this.element).hidden = find(".capture", this.element).hidden = !open;
    find(".camera", this.element).textContent = open ? "Close the camera" : "Use the camera";
  }

  async capture() {
    const video = find("video", this.element);
    const canvas = Object.assign(make("canvas"), { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    if (!this.multiple) this.closeCamera();
    this.add([await toFile(canvas, "image/jpeg", "camera.jpg")]);
  }
}

function toFile(canvas, type, name) {
  return new Promise((done) => canvas.toBlob((blob) => done(new File([blob], name, { type })), type, 0.95));
}

// A canvas to draw on with the mouse, a finger or a pen.
class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.pen.lineWidth = canvas.width / 22; // about as thick as the strokes of the doodles
    this.pen.lineCap = this.pen.lineJoin = "round";
    this.finished = () => {}; // called after each stroke
    let drawing = false;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      drawing = true;
      this.pen.beginPath();
      this.pen.moveTo(...this.position(event));
      this.line(event);
    });
    canvas.addEventListener("pointermove", (event) => drawing && this.line(event));
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, () => {
        if (drawing) this.finished();
        drawing = false;
      });
    }
    this.clear();
  }

  position(event) {
    const box = this.canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * this.canvas.width) / box.width,
      ((event.clientY - box.top) * this.canvas.height) / box.height,
    ];
  }

  line(event) {
    this.empty = false;
    this.pen.lineTo(...this.position(event));
    this.pen.stroke();
  }

  clear() {
    this.empty = true;
    this.pen.fillStyle = "#fff";
    this.pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
  }

  file() {
    return toFile(this.canvas, "image/png", "drawing.png");
  }
}

// Ask

let asked = 0; // only the answer to the latest question is shown

async function ask(images) {
  const current = ++asked;
  if (!images.length) return notice("#answer", "The answer appears here.");
  let shown;
  try {
    const [prediction] = await call(`predict?top=${MOST_CANDIDATES}`, form("images", images));
    shown = await answerCard(prediction);
  } catch (error) {
    shown = warning(error.message);
  }
  if (current === asked) show("#answer", shown);
}

async function answerCard({ answer, remark, top }) {
  const [full, empty] = [top[0].similarity, top.at(-1).similarity];
  const rows = top.slice(0, SHOWN_BARS).map(async ({ name, similarity }, position) => {
    const share = full > empty ? (similarity - empty) / (full - empty) : 1;
    const best = position === 0 && answer !== null;
    return make("div", "row", await thumbnails(name, 1), label(name), bar(share, best), number(similarity.toFixed(3)));
  });
  return make(
    "div",
    "card",
    make("div", answer === null ? "verdict unknown" : "verdict", answer ?? "unknown"),
    make("p", "note", remark),
    ...(await Promise.all(rows)),
    make("p", "note", "Similarity: bars run from the least similar class, empty, to the most similar."),
  );
}

// Teach

async function teach(dryRun) {
  const { images } = examples;
  const values = { name: find("#name").value, dry_run: dryRun };
  const done = await attempt("#report", async () => {
    if (!images.length) throw new Error("There is nothing to teach from yet; give examples first.");
    return reportCard(await call("teach", form("photos", images, values)));
  });
  if (dryRun || !done) return; // what was typed and given stays, to be changed
  find("#name").value = "";
  examples.set([]);
  examples.closeCamera();
  refresh();
}

async function reportCard(report) {
  const title = report.dry_run ? "What it would do" : report.photos ? "Taught" : "Nothing new";
  const card = make("div", "card", make("h2", "", title), make("p", "", report.sentence));
  if (report.closest.length) card.append(make("h3", "", "Closest classes"));
  for (const { name, similarity } of report.closest) {
    card.append(make("div", "row", label(name), await thumbnails(name, 3), number(similarity.toFixed(3))));
  }
  if (report.reassigned.length) card.append(make("h3", "", "Stored images it takes, by their answer before"));
  for (const each of report.reassigned) {
    card.append(make("div", "row", label(`${each.count} of ${each.of} ${each.name}`), pictures(each.thumbnails)));
  }
  card.append(...report.warnings.map(warning));
  return card;
}

async function undo(where) {
  const undone = async () => make("div", "card", `Undone: ${(await call("undo", {})).sentence}`);
  if (await attempt(where, undone)) refresh();
}

// Classes and history

let classes = [];

function balanceRow(name, right, images) {
  const share = right / images;
  const count = make("span", "count", `${right} of ${images}`);
  return make("div", "row", label(name), bar(share, true), number(`${Math.round(100 * share)}%`), count);
}

function balanceCard(balance) {
  const card = make("div", "card", make("h2", "", "Balance"));
  if (balance.base_images) card.append(balanceRow("base classes", balance.base_right, balance.base_images));
  if (balance.taught_images) card.append(balanceRow("taught classes", balance.taught_right, balance.taught_images));
  const text = card.children.length > 1
    ? "Stored images answered right: samples of the training images, and taught photos, each left out once."
    : "Nothing stored yet.";
  card.append(make("p", "note", text));
  return card;
}

function kind({ base, photos, trained_on }) {
  const taught = `${photos} ${photos === 1 ? "photo" : "photos"}`;
  if (!base) return `taught, ${taught}`;
  return `base, trained on ${trained_on.toLocaleString("en")} images${photos ? `, ${taught} taught` : ""}`;
}

// Load the thumbnails of a class only when its card comes into view: there may be many classes.
const visible = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    visible.unobserve(target);
    thumbnails(target.dataset.name, 5).then((images) => target.append(images), () => {});
  }
});

function classCard(info) {
  const card = make("div", "card class", label(info.name), make("div", "note", kind(info)));
  card.dataset.name = info.name;
  visible.observe(card);
  return card;
}

function showClasses() {
  const wanted = find("#search").value.trim().toLowerCase();
  const found = classes.filter(({ name }) => name.toLowerCase().includes(wanted));
  visible.disconnect();
  show("#class-list", ...found.slice(0, SHOWN_CLASSES).map(classCard));
  const more = found.length - SHOWN_CLASSES;
  const none = classes.length ? "No such class." : "No class yet.";
  find("#more").textContent = more > 0 ? `and ${more.toLocaleString("en")} more: search for them` : found.length ? "" : none;
}

function eventRow({ id, at, sentence, undone }) {
  const cells = [id, at.slice(0, 19).replace("T", " "), sentence];
  return make("tr", undone ? "undone" : "", ...cells.map((text) => make("td", "", text)));
}

let refreshes = 0; // only what the latest one read is shown

async function refresh() {
  const current = ++refreshes;
  try {
    const [balance, listed, events] = await Promise.all([
      call("balance"), call("classes"), call(`history?limit=${SHOWN_EVENTS}`),
    ]);
    if (current !== refreshes) return;
    classes = [...listed.filter(({ base }) => !base), ...listed.filter(({ base }) => base)];
    const names = classes.slice(0, MOST_NAMES).map(({ name }) => name);
    show("#names", ...names.map((name) => Object.assign(make("option"), { value: name })));
    showClasses();
    show("#events", ...events.map(eventRow));
    show("#balance", balanceCard(balance));
  } catch (error) {
    show("#balance", warning(error.message));
  }
}

// The form that changes a class; `values` makes the request from what was typed.
function onChange(button, path, values, sentence) {
  onClick(find(button), async () => {
    const request = values();
    const change = async () => {
      await call(path, request);
      return make("div", "card", sentence(request));
    };
    if (await attempt("#change", change)) refresh();
  });
}

// Tabs

const tabs = findAll("[role=tab]");

function openTab(chosen) {
  for (const tab of tabs) {
    const open = tab === chosen;
    tab.setAttribute("aria-selected", open);
    tab.tabIndex = open ? 0 : -1;
    find(`#${tab.getAttribute("aria-controls")}`).hidden = !open;
  }
  for (const input of [question, examples]) input.closeCamera();
}

const question = new ImageInput(find("#question"), ask);
const examples = new ImageInput(find("#examples"), () => {});

if (question.canvas) {
  question.canvas.finished = async () => {
    question.showImages([]);
    ask([await question.canvas.file()]);
  };
  onClick(find("#examples .add"), async () => {
    if (examples.canvas.empty) return notice("#report", "Draw something first, then add it.");
    const drawing = await examples.canvas.file();
    examples.canvas.clear();
    examples.add([drawing]);
  });
}

// Files that are pasted, or dropped anywhere, go to the open tab.
function receive(files) {
  const open = [question, examples].find(({ element }) => element.offsetParent);
  open?.add([...files]);
}
document.addEventListener("paste", (event) => receive(event.clipboardData.files));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  receive(event.dataTransfer.files);
});

find("[role=tablist]").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = tabs.at((tabs.indexOf(document.activeElement) + step) % tabs.length);
  next.focus();
  openTab(next);
});
for (const tab of tabs) tab.addEventListener("click", () => openTab(tab));
onClick(find("#dry-run"), () => teach(true));
onClick(find("#teach-class"), () => teach(false));
onClick(find("#teach .undo"), () => undo("#report"));
onClick(find("#history .undo"), () => undo("#undone"));
find("#search").addEventListener("input", showClasses);
const changed = () => find("#changed").value;
onChange("#forget", "forget", () => ({ name: changed() }), ({ name }) => `${name} is forgotten.`);
onChange("#rename", "rename", () => ({ name: changed(), new_name: find("#new-name").value }),
  ({ name, new_name }) => `${name} is ${new_name} now.`);
onChange("#merge", "merge", () => ({ name: changed(), into: find("#into").value }),
  ({ name, into }) => `${name} is part of ${into} now.`);

notice("#answer", "The answer appears here.");
notice("#report", "What the class does to others appears here.");
openTab(tabs[0]);
refresh();
