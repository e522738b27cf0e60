// Classes: how well they do, whether their photos are enough, and a card for each to change it.
import {
  bar, button, call, counted, find, findAll, label, make, number, onClick, percent, show, storedPicture, thumbnails,
  warning,
} from "./dom.js";
import { chooser } from "./chooser.js";
import { change, classes, names } from "./state.js";

const SHOWN_CLASSES = 200;
const SHOWN_CURVES = 4;
const PHOTOS = 100; // of a class, shown at once
const SVG = "http://www.w3.org/2000/svg";

let curves = new Map(); // by name

function balanceRow(name, right, images) {
  const share = right / images;
  const count = make("span", "count", `${right} of ${images}`);
  return make("div", "row", label(name), bar(share, true), number(percent(share)), count);
}

export function balanceCard(balance) {
  const card = make("div", "card", make("h2", "", "Balance"));
  if (balance.base_images) card.append(balanceRow("base classes", balance.base_right, balance.base_images));
  if (balance.taught_images) card.append(balanceRow("taught classes", balance.taught_right, balance.taught_images));
  const text = card.children.length > 1
    ? "Stored images answered right: samples of the training images, and taught photos, each left out once."
    : "Nothing stored yet.";
  card.append(make("p", "note small", text));
  return card;
}

// The accuracy at 1, 2, ... photos as a small row of columns.
function curveChart(accuracy) {
  const chart = document.createElementNS(SVG, "svg");
  const height = 24;
  const about = {
    class: "curve", role: "img", viewBox: `0 0 ${8 * accuracy.length} ${height}`, width: 13 * accuracy.length,
    preserveAspectRatio: "xMaxYMax meet",
    "aria-label": accuracy.map((share, i) => `${percent(share)} at ${i + 1}`).join(", "),
  };
  for (const [name, value] of Object.entries(about)) chart.setAttribute(name, value);
  const column = (kind, position, filled) => {
    const element = document.createElementNS(SVG, "rect");
    const place = { class: kind, x: 8 * position + 1, y: height - filled, width: 6, height: filled, rx: 1.5 };
    for (const [name, value] of Object.entries(place)) element.setAttribute(name, value);
    chart.append(element);
  };
  accuracy.forEach((share, position) => {
    column("whole", position, height);
    column("share", position, share * height);
  });
  return chart;
}

const CHIPS = { more: "needs more", others: "needs other photos", enough: "enough" };

const chip = ({ verdict }) => make("span", `chip ${verdict}`, CHIPS[verdict]);

function curveRow(curve) {
  const name = button(curve.name, () => openClass(curve.name), "link name");
  const told = make("div", "told", make("div", "", name, chip(curve)), make("p", "note", curve.advice));
  return make("div", "row curve-row", told, curveChart(curve.accuracy));
}

export async function showCurves() {
  let found;
  try {
    found = await call("learning-curves");
  } catch (error) {
    return show("#enough", warning(error.message));
  }
  curves = new Map(found.map((curve) => [curve.name, curve]));
  const card = make("div", "card", make("h2", "", "Enough photos?"));
  const wanting = found.filter(({ verdict }) => verdict !== "enough");
  if (!found.length) card.append(make("p", "note", "Teach a class, and it is told here whether its photos are enough."));
  else if (!wanting.length) card.append(make("p", "", "All taught classes have enough photos."));
  else {
    const some = wanting.slice(0, 3).map(({ name }) => name).join(", ");
    card.append(make("p", "", `Next, give photos of: ${some}${wanting.length > 3 ? "\u00a0…" : ""}`));
  }
  card.append(...found.slice(0, SHOWN_CURVES).map(curveRow));
  if (found.length > SHOWN_CURVES) card.append(make("p", "note", `and ${found.length - SHOWN_CURVES} more, on their cards`));
  if (found.length) {
    const text = "Columns: the share of photos answered right when their class is taught from 1, 2, … of the others.";
    card.append(make("p", "note small", text));
  }
  show("#enough", card);
  findAll("#class-list .class").forEach(showVerdict);
}

// Cards are not made anew for it: their thumbnails would be loaded once more.
function showVerdict(card) {
  find(".chip", card)?.remove();
  const curve = curves.get(card.dataset.name);
  if (curve) find(".note", card).after(chip(curve));
}

function kind({ base, photos, trained_on }) {
  const taught = counted(photos, "photo");
  if (!base) return `taught, ${taught}`;
  return `base, trained on ${counted(trained_on, "image")}${photos ? `, ${taught} taught` : ""}`;
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
  const card = button("", () => openClass(info.name), "card class");
  card.append(label(info.name), make("span", "note", kind(info)));
  card.dataset.name = info.name;
  showVerdict(card);
  visible.observe(card);
  return card;
}

export function showClasses() {
  const wanted = find("#search").value.trim().toLowerCase();
  const found = classes().filter(({ name }) => name.toLowerCase().includes(wanted));
  visible.disconnect();
  show("#class-list", ...found.slice(0, SHOWN_CLASSES).map(classCard));
  const more = found.length - SHOWN_CLASSES;
  const none = classes().length ? "No such class." : "No class yet.";
  find("#more").textContent = more > 0 ? `and ${more.toLocaleString("en")} more: search for them` : found.length ? "" : none;
}

// The card of one class, opened

const dialog = find("#class-dialog");
let opened = null; // the name of the class

const chosenPhotos = () => findAll("#class-photos input:checked").map(({ value }) => Number(value));

async function openClass(name) {
  const info = classes().find((each) => each.name === name);
  if (!info) return;
  opened = name;
  find("#class-title").textContent = name;
  find("#class-kind").textContent = kind(info);
  find("#new-name").value = name;
  const curve = curves.get(name);
  show("#class-curve", ...(curve ? [make("p", "", curve.advice), curveChart(curve.accuracy)] : []));
  show("#class-chooser");
  show("#class-photos");
  if (!dialog.open) dialog.showModal();
  await morePhotos();
}

async function morePhotos() {
  const [name, skip] = [opened, find("#class-photos").children.length];
  let found;
  try {
    found = await call(`photos?name=${encodeURIComponent(name)}&limit=${PHOTOS}&skip=${skip}`);
  } catch (error) {
    return show("#class-photos", warning(error.message));
  }
  if (opened !== name) return;
  find("#class-photos").append(...found.map(photoTile));
  find("#more-photos").hidden = found.length < PHOTOS;
  showChosen();
}

function photoTile({ id, taught, thumbnail }) {
  const picture = storedPicture(thumbnail);
  picture.alt = taught ? "a taught photo" : "a training image";
  if (!taught) return Object.assign(make("span", "photo", picture), { title: "A training image, which stays" });
  const box = Object.assign(make("input"), { type: "checkbox", value: id });
  box.addEventListener("change", showChosen);
  return make("label", "photo", box, picture);
}

function showChosen() {
  const count = chosenPhotos().length;
  const some = findAll("#class-photos input").length > 0;
  find("#photo-tools").hidden = !some;
  find("#photo-count").textContent = count ? `${counted(count, "photo")} chosen` : "Choose photos to move or drop them.";
  for (const each of findAll("#photo-tools .needs-choice")) each.disabled = !count;
}

// Change the opened class; it is shown again under `next`, or closed.
async function changeClass(path, content, sentence, next) {
  if (!(await change(path, { name: opened, ...content }, sentence))) return;
  if (next === null) dialog.close();
  else document.addEventListener("refreshed", () => reopen(next), { once: true });
}

function reopen(name) {
  if (!dialog.open) return;
  if (classes().some((each) => each.name === name)) openClass(name);
  else dialog.close(); // it went with its last photo
}

function chooseClass(text, isNew, chosen) {
  const field = chooser({ text, isNew, names: () => names([], [opened]), chosen });
  show("#class-chooser", make("h3", "", text), field);
  field.start();
}

find("#search").addEventListener("input", showClasses);
onClick(find("#close-class"), () => dialog.close());
dialog.addEventListener("close", () => document.body.append(find("#toast"))); // what it says stays
onClick(find("#more-photos"), morePhotos);
onClick(find("#rename"), () => {
  const [name, new_name] = [opened, find("#new-name").value.trim()];
  return changeClass("rename", { new_name }, () => `${name} is ${new_name} now.`, new_name);
});
onClick(find("#forget"), () => {
  const name = opened;
  return changeClass("forget", {}, () => `${name} is forgotten.`, null);
});
onClick(find("#merge"), () => chooseClass("Merge it into", false, (into) => {
  const name = opened;
  return changeClass("merge", { into }, () => `${name} is part of ${into} now.`, null);
}));
onClick(find("#drop-photos"), () => {
  const [name, photos] = [opened, chosenPhotos()];
  return changeClass("photos/drop", { photos }, () => `${counted(photos.length, "photo")} of ${name} dropped.`, name);
});
onClick(find("#move-photos"), () => chooseClass("Move the chosen photos to", true, (into) => {
  const [name, photos] = [opened, chosenPhotos()];
  const sentence = () => `${counted(photos.length, "photo")} of ${name} moved to ${into}.`;
  return changeClass("photos/move", { photos, into }, sentence, name);
}));
