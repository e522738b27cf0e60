// Ask: an answer, and what a person says to it.
import { bar, button, call, find, form, label, make, notice, number, show, thumbnails, warning } from "./dom.js";
import { chooser } from "./chooser.js";
import { ImageInput } from "./images.js";
import { change, hush, names } from "./state.js";

const SHOWN_BARS = 5;
const MOST_CANDIDATES = 100;

let asked = 0; // only the answer to the latest question is shown
let askedImage; // that the answer is about

export const question = new ImageInput(find("#question"), askGiven, askLive);

const predict = (image, remember) =>
  call(`predict?top=${MOST_CANDIDATES}&remember=${remember}`, form("images", [image]));

export async function ask(images, remember = true) {
  const current = ++asked;
  askedImage = images[0];
  if (!images.length) return notice("#answer", "The answer appears here.");
  find("#answer .feedback")?.remove(); // what is said now is not about the former image
  if (remember) hush(); // nor is what was done with it
  const shown = await answer(images[0], remember);
  if (current === asked) show("#answer", shown);
}

// On a phone the answer to a file stands below the window. While somebody draws, nothing moves.
async function askGiven(images) {
  await ask(images);
  find("#answer .feedback")?.scrollIntoView({ block: "nearest" });
}

document.addEventListener("undone", () => askedImage && ask([askedImage], false)); // what does it say now?

// Frames of the camera are not kept among the pictures asked lately: there would be nothing else.
async function askLive(frame, isOpen) {
  const current = ++asked;
  askedImage = undefined;
  const shown = await answer(frame, false);
  if (current === asked && isOpen()) show("#answer", shown);
}

async function answer(image, remember) {
  try {
    const [prediction] = await predict(image, remember);
    return await answerCard(prediction, image);
  } catch (error) {
    askedImage = undefined; // it would be refused again
    return warning(error.message);
  }
}

async function answerCard(prediction, image) {
  const { answer, remark, top } = prediction;
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
    feedback(prediction, image),
    ...(await Promise.all(rows)),
    make("p", "note small", "The longer its bar, the more similar a class is. The numbers say how similar."),
  );
}

// "Right", "It is ..." and, where a class is answered, "Teach this" under an answer.
function feedback({ id, answer, top }, image) {
  const said = make("div", "said");
  const teachAs = async (name) => {
    const values = { name, dry_run: false };
    if (await change("teach", form("photos", [image], values), ({ sentence }) => sentence)) {
      await ask([image], false); // what does it say now?
    }
  };
  const choose = () => {
    if (find("#question video")?.srcObject) question.freeze(image);
    asked += 1; // this card stays, whatever is on the way
    const likely = top.slice(0, SHOWN_BARS).map(({ name }) => name);
    const field = chooser({
      text: "What it is",
      names: () => (answer === null ? names(likely) : [...names(likely, [answer]), answer]), // what it is not: last
      chosen: teachAs,
    });
    said.replaceChildren(field);
    field.start();
  };
  const right = async () => {
    if (id) await call("recent/dismiss", { ids: [id] }).catch(() => {});
    said.replaceChildren(make("p", "note", "Good. It is not among the unsure ones any more."));
  };
  const buttons = [button("Right", right, "right"), button("It is …", choose, "correct")];
  if (answer !== null) buttons.push(button("Teach this", () => teachAs(answer), "teach-this"));
  return make("div", "feedback", make("div", "buttons", ...buttons), said);
}
