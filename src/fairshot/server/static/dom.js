// Elements of the page, and calls of the REST API. Names are always set as text, never as HTML.

export const find = (selector, within = document) => within.querySelector(selector);
export const findAll = (selector, within = document) => [...within.querySelectorAll(selector)];

export function make(tag, kind = "", ...children) {
  const element = document.createElement(tag);
  element.className = kind;
  element.append(...children);
  return element;
}

export const number = (value) => make("span", "number", value);
export const percent = (share) => `${Math.round(100 * share)}%`;
export const counted = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

export function label(text) {
  const element = make("span", "name", text);
  element.title = text;
  return element;
}

export function bar(share, best) {
  const filled = make("span", best ? "bar best" : "bar");
  filled.style.width = `${100 * share}%`;
  return make("span", "track", filled);
}

// A button that does something on each click, but not again before it is done.
export function onClick(button, action) {
  button?.addEventListener("click", async () => {
    if (button.ariaBusy === "true") return;
    button.ariaBusy = "true";
    try {
      await action();
    } finally {
      button.ariaBusy = "false";
    }
  });
  return button;
}

export const button = (text, action, kind = "") => onClick(make("button", kind, text), action);

export async function call(path, content) {
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

export function form(field, images, values = {}) {
  const content = new FormData();
  for (const image of images) content.append(field, image, image.name);
  for (const [name, value] of Object.entries(values)) content.append(name, value);
  return content;
}

export const show = (where, ...elements) => find(where).replaceChildren(...elements);
export const notice = (where, text) => show(where, make("div", "card note", text));
export const warning = (text) => make("div", "warning", text);

// Do something and show its result; if it fails, show why. Returns whether it was done.
export async function attempt(where, action) {
  try {
    show(where, await action());
    return true;
  } catch (error) {
    show(where, warning(error.message));
    return false;
  }
}

// A stored picture; in stores of drawings it is white ink on black, and shown as black ink on white.
export const storedPicture = (url) => Object.assign(make("img", "stored"), { src: url, alt: "" });
export const pictures = (urls) => make("span", "pictures", ...urls.map(storedPicture));

const kept = new Map(); // thumbnails by class and number, until something changes
export const forgetThumbnails = () => kept.clear();

export async function thumbnails(name, limit) {
  const path = `thumbnails?name=${encodeURIComponent(name)}&limit=${limit}`;
  if (!kept.has(path)) {
    kept.set(path, call(path));
    kept.get(path).catch(() => kept.delete(path)); // asked again the next time
  }
  return pictures(await kept.get(path));
}

const DAY = { day: "numeric", month: "short" };
const HOUR = { hour: "2-digit", minute: "2-digit", hour12: false };

// A moment as people say it: today 14:05; 3 Nov 14:05; 3 Nov 2024.
export function moment(text) {
  const [at, now] = [new Date(text), new Date()];
  let told = at.toLocaleDateString("en-GB", { ...DAY, year: "numeric" });
  const hour = at.toLocaleTimeString("en-GB", HOUR);
  if (at.toDateString() === now.toDateString()) told = `today ${hour}`;
  else if (at.getFullYear() === now.getFullYear()) told = `${at.toLocaleDateString("en-GB", DAY)} ${hour}`;
  const element = make("time", "", told);
  element.dateTime = text;
  element.title = at.toLocaleString("en-GB");
  return element;
}
