// A field to choose a class by typing a part of its name, or to type the name of a new one.
import { make, thumbnails } from "./dom.js";

const MOST_OPTIONS = 8;
let lists = 0; // each list of options has an id of its own

// `names()` returns the names to choose from, the likeliest first. Without `isNew` only those can be chosen.
export function chooser({ text, names, chosen, isNew = true }) {
  const input = make("input");
  const list = make("ul", "options");
  list.role = "listbox";
  list.id = `options-${(lists += 1)}`;
  list.ariaLabel = text;
  Object.assign(input, { type: "text", maxLength: 100, autocomplete: "off", placeholder: "Search, or a new name" });
  if (!isNew) input.placeholder = "Search for a class";
  Object.assign(input, { role: "combobox", ariaLabel: text, ariaExpanded: "true", ariaAutoComplete: "list" });
  input.setAttribute("aria-controls", list.id);
  let active = 0;

  const options = () => [...list.children];
  const activate = (position) => {
    active = Math.max(0, Math.min(position, options().length - 1));
    options().forEach((option, index) => option.setAttribute("aria-selected", index === active));
    const option = options()[active];
    if (option) {
      input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };
  const refresh = () => {
    const typed = input.value.trim();
    const found = names().filter((name) => name.toLowerCase().includes(typed.toLowerCase()));
    const exact = found.find((name) => name.toLowerCase() === typed.toLowerCase());
    const shown = found.filter((name) => name !== exact).slice(0, MOST_OPTIONS - 1);
    if (exact) shown.unshift(exact);
    const values = shown.map((name) => [name, false]);
    if (typed && isNew && !names().includes(typed)) values.push([typed, true]);
    list.replaceChildren(...values.map(([name, fresh], index) => option(name, fresh, `${list.id}-${index}`)));
    for (const each of options()) each.addEventListener("click", () => chosen(each.dataset.name));
    activate(0);
  };

  input.addEventListener("input", refresh);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) activate(active + step);
    else if (event.key === "Enter" && options()[active]) chosen(options()[active].dataset.name);
    else return;
    event.preventDefault();
  });
  refresh();
  const start = () => {
    input.focus();
    list.scrollIntoView({ block: "nearest" }); // on a phone it may begin below the window
  };
  return Object.assign(make("div", "chooser", input, list), { start });
}

function option(name, isNew, id) {
  const element = make("li", isNew ? "option new" : "option");
  Object.assign(element, { id, role: "option", title: name });
  element.dataset.name = name;
  element.append(make("span", "picture"), make("span", "", isNew ? `New class: ${name}` : name));
  if (!isNew) {
    const place = element.firstChild;
    thumbnails(name, 1).then((images) => place.append(...images.children), () => {});
  }
  return element;
}
