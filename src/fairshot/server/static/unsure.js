// Unsure: pictures asked lately, the least sure first, to be labelled many at once.
import { call, counted, find, findAll, make, moment, onClick, show, storedPicture, warning } from "./dom.js";
import { chooser } from "./chooser.js";
import { change, names, sayProblem } from "./state.js";

const SHOWN = 60;
let listed = [];

const chosen = () => findAll("#unsure-list input:checked").map(({ value }) => value);

export async function showUnsure() {
  try {
    listed = await call(`recent?limit=${SHOWN}&top=3`);
  } catch (error) {
    return show("#unsure-list", warning(error.message));
  }
  const kept = new Set(chosen()); // what was chosen stays so
  show("#unsure-list", ...listed.map((each) => tile(each, kept.has(each.id))));
  find("#unsure-none").hidden = listed.length > 0;
  find("#unsure-tools").hidden = !listed.length;
  showChosen();
}

function tile({ id, at, thumbnail, prediction }, isChosen) {
  const box = Object.assign(make("input"), { type: "checkbox", value: id, checked: isChosen });
  box.addEventListener("change", showChosen);
  const answer = make("span", "name", prediction.answer ?? "unknown");
  const notes = [make("span", "note", prediction.remark), make("span", "note", moment(at))];
  return make("label", "tile card", box, storedPicture(thumbnail), answer, ...notes);
}

function showChosen() {
  const ids = chosen();
  find("#unsure-count").textContent = ids.length
    ? `${counted(ids.length, "picture")} chosen`
    : "Choose pictures, then say what they show.";
  for (const button of findAll("#unsure-tools .needs-choice")) button.disabled = !ids.length;
  find("#select-all").textContent = ids.length === listed.length ? "Choose none" : "Choose all";
  if (!ids.length) show("#unsure-chooser");
}

function choose() {
  const some = new Set(chosen());
  const top = listed.filter(({ id }) => some.has(id)).flatMap(({ prediction }) => prediction.top);
  const field = chooser({
    text: "What they show",
    names: () => names(top.map(({ name }) => name)),
    chosen: async (name) => {
      if (await change("recent/teach", { ids: chosen(), name }, ({ sentence }) => sentence)) show("#unsure-chooser");
    },
  });
  show("#unsure-chooser", field);
  field.start();
}

async function dismiss() {
  try {
    await call("recent/dismiss", { ids: chosen() });
  } catch (error) {
    sayProblem(error);
  }
  await showUnsure();
}

onClick(find("#select-all"), () => {
  const boxes = findAll("#unsure-list input");
  const all = boxes.every(({ checked }) => checked);
  for (const box of boxes) box.checked = !all;
  showChosen();
});
onClick(find("#unsure-right"), dismiss);
onClick(find("#unsure-remove"), dismiss);
onClick(find("#unsure-correct"), choose);
