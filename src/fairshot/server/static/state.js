// The classes of the store as last read, and what tells that something was changed.
import { button, call, find, findAll, make } from "./dom.js";

let known = [];

export const classes = () => known;
export const setClasses = (listed) => (known = listed);

// All names, some likely ones first.
export function names(likely = [], without = []) {
  const all = new Set([...likely, ...known.map(({ name }) => name)]);
  return [...all].filter((name) => !without.includes(name));
}

// What was said of an earlier change goes: its Undo would take back this one.
export function tellChange() {
  hush();
  nameUndo([]); // until the store is read again
  document.dispatchEvent(new Event("changed"));
}

export const hush = () => (find("#toast").hidden = true);

// Say something at the bottom of the page, or of the dialog that is open over it.
function toast(...children) {
  const place = find("#toast");
  place.replaceChildren(...children, button("Close", hush));
  (find("dialog[open]") ?? document.body).append(place);
  place.hidden = false;
}

// Say what was done, with a button that takes it back.
export function say(text, warnings = []) {
  toast(make("span", "", text), ...warnings.map((each) => make("p", "", each)), button("Undo", undo));
}

export const sayProblem = (error) => toast(make("span", "", error.message));

// Take back the last change, whatever it was, and say so.
export async function undo() {
  try {
    const { sentence } = await call("undo", {});
    tellChange();
    document.dispatchEvent(new Event("undone")); // what was answered before may be another answer now
    toast(make("span", "", `Undone: ${sentence}`));
  } catch (error) {
    sayProblem(error);
  }
}

// Say on the buttons which change they would take back: the latest that is not undone.
export function nameUndo(events) {
  const last = events.find(({ kind, undone }) => !undone && kind !== "new" && kind !== "undo");
  for (const each of findAll(".undo")) {
    each.textContent = last ? `Undo: ${last.sentence}` : "Undo the last change";
  }
}

// Do something that changes the store, say it, and read the store again. Returns whether it was done.
export async function change(path, content, sentence) {
  try {
    const result = await call(path, content);
    tellChange();
    if (result?.photos === 0) toast(make("span", "", sentence(result))); // nothing new, nothing to undo
    else say(sentence(result), result?.warnings);
    return true;
  } catch (error) {
    sayProblem(error);
    return false;
  }
}
