"use strict";
// Hide and show methods, switch sessions and colours, copy commands. The page is whole without this.

for (const benchmark of document.querySelectorAll("[data-benchmark]")) {
  for (const box of benchmark.querySelectorAll("[data-toggle]")) {
    const show = () => {
      for (const element of benchmark.querySelectorAll(`[data-method="${box.dataset.toggle}"]`)) {
        element.style.display = box.checked ? "" : "none";
      }
    };
    box.addEventListener("change", show);
    show(); // a browser may remember what was unticked before a reload
  }
}

for (const section of document.querySelectorAll("[data-sessions]")) {
  const radios = [...section.querySelectorAll("input[type=radio]")];
  const show = () => {
    const chosen = radios.find((radio) => radio.checked).value;
    for (const view of section.querySelectorAll("[data-session]")) {
      view.hidden = view.dataset.session !== chosen;
    }
  };
  radios.forEach((radio) => radio.addEventListener("change", show));
  show();
  const folds = [...section.querySelectorAll(".each")]; // one per session: unfolded in one, unfolded in all
  for (const fold of folds) {
    fold.addEventListener("toggle", () => folds.forEach((one) => (one.open = fold.open)));
  }
}

// The bar above is as high as the methods need; a heading that is jumped to stands below it.
const bar = document.querySelector(".bar");
if (bar) {
  new ResizeObserver(() => {
    document.documentElement.style.scrollPaddingTop = `${bar.offsetHeight + 12}px`;
  }).observe(bar);
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
});

for (const button of document.querySelectorAll(".copy")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "copied";
    setTimeout(() => (button.textContent = "copy"), 1500);
  });
}

// What is folded up belongs on paper too.
const details = document.querySelectorAll("details");
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...details].filter((one) => !one.open);
  opened.forEach((one) => (one.open = true));
});
addEventListener("afterprint", () => opened.forEach((one) => (one.open = false)));
