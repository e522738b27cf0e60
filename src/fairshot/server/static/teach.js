// Teach: a name, examples, and a report of what the class does to others.
import { attempt, call, find, form, label, make, notice, number, onClick, pictures, thumbnails, warning } from "./dom.js";
import { ImageInput } from "./images.js";
import { tellChange, undo } from "./state.js";

export const examples = new ImageInput(find("#examples"), () => {});

const beginReport = () => notice("#report", "What the class does to others appears here.");

async function teach(dryRun) {
  const { images } = examples;
  const values = { name: find("#name").value, dry_run: dryRun };
  const done = await attempt("#report", async () => {
    if (!images.length) throw new Error("There is nothing to teach from yet; give examples first.");
    const report = await call("teach", form("photos", images, values));
    if (!dryRun && report.photos) find("#teach .undo").hidden = false; // a preview leaves nothing to undo
    return reportCard(report);
  });
  if (dryRun || !done) return; // what was typed and given stays, to be changed
  find("#name").value = "";
  examples.set([]);
  examples.closeCamera();
  tellChange();
}

async function reportCard(report) {
  const title = report.dry_run ? "What it would do" : report.photos ? "Taught" : "Nothing new";
  const card = make("div", "card", make("h2", "", title), make("p", "", report.sentence));
  if (report.closest.length) card.append(make("h3", "", "Closest classes"));
  for (const { name, similarity } of report.closest) {
    card.append(make("div", "row", label(name), await thumbnails(name, 3), number(similarity.toFixed(3))));
  }
  if (report.reassigned.length) card.append(make("h3", "", "Images that change to it, by their answer before"));
  for (const each of report.reassigned) {
    card.append(make("div", "row", label(`${each.count} of ${each.of} ${each.name}`), pictures(each.thumbnails)));
  }
  card.append(...report.warnings.map(warning));
  return card;
}

onClick(find("#dry-run"), () => teach(true));
onClick(find("#teach-class"), () => teach(false));
onClick(find("#teach .undo"), undo);
document.addEventListener("undone", beginReport); // what it says may not hold any more
beginReport();
