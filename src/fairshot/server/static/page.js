// The page of a store: its tabs, and what is read again after each change.
import { call, find, findAll, forgetThumbnails, make, moment, notice, onClick, show, warning } from "./dom.js";
import { ask, question } from "./ask.js";
import { examples } from "./teach.js";
import { balanceCard, showClasses, showCurves } from "./classes.js";
import { hush, nameUndo, setClasses, undo } from "./state.js";
import { showUnsure } from "./unsure.js";

const SHOWN_EVENTS = 50;
const MOST_NAMES = 1000; // in the list of suggested class names

function eventRow({ at, sentence, undone }) {
  return make("li", undone ? "undone" : "", make("span", "sentence", sentence), moment(at));
}

let refreshes = 0; // only what the latest one read is shown

async function refresh() {
  const current = ++refreshes;
  forgetThumbnails();
  try {
    const [balance, listed, events] = await Promise.all([
      call("balance"), call("classes"), call(`history?limit=${SHOWN_EVENTS}`),
    ]);
    if (current !== refreshes) return;
    const classes = [...listed.filter(({ base }) => !base), ...listed.filter(({ base }) => base)];
    setClasses(classes);
    const names = classes.slice(0, MOST_NAMES).map(({ name }) => name);
    show("#names", ...names.map((name) => Object.assign(make("option"), { value: name })));
    find("#welcome").hidden = classes.length > 0;
    showClasses();
    show("#events", ...events.map(eventRow));
    nameUndo(events);
    show("#balance", balanceCard(balance));
    document.dispatchEvent(new Event("refreshed"));
  } catch (error) {
    show("#balance", warning(error.message));
  }
  showOpened();
}

// What takes longer is read when its tab is open.
function showOpened() {
  if (!find("#classes").hidden) showCurves();
  if (!find("#unsure").hidden) showUnsure();
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
  hush();
  showOpened();
}

find("[role=tablist]").addEventListener("keydown", (event) => {
  const position = tabs.indexOf(document.activeElement);
  const next = { ArrowRight: position + 1, ArrowLeft: position - 1, Home: 0, End: -1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const tab = tabs.at(next % tabs.length);
  tab.focus();
  openTab(tab);
});
for (const tab of tabs) tab.addEventListener("click", () => openTab(tab));

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

document.addEventListener("changed", refresh);
onClick(find("#history .undo"), undo);
notice("#answer", "The answer appears here.");
openTab(find(document.body.dataset.empty ? "#tab-teach" : "#tab-ask"));
refresh();
