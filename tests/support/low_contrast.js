// All visible text within an element whose contrast with what lies below it is under 4.5 to 1 (WCAG 2).
(root) => {
  const parse = (text) => { const found = text.match(/[\d.]+/g).map(Number); return found.length > 3 ? found : [...found, 1]; };
  const over = (top, under) => [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * under[i]).concat(1);
  const chain = (element) => element ? [...chain(element.parentElement), element] : [];
  const ground = (element) => chain(element).reduce((under, each) => over(parse(getComputedStyle(each).backgroundColor), under), [255, 255, 255, 1]);
  const light = (color) => color.slice(0, 3).map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, i) => sum + [0.2126, 0.7152, 0.0722][i] * value, 0);
  const contrast = (element, color) => {
    const opacity = chain(element).reduce((product, each) => product * getComputedStyle(each).opacity, 1);
    const below = ground(element);
    const [r, g, b, alpha] = parse(color);
    const pair = [light(over([r, g, b, alpha * opacity], below)), light(below)].sort((one, other) => other - one);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  };
  const within = document.querySelector(root);
  const walker = document.createTreeWalker(within, NodeFilter.SHOW_TEXT);
  const shown = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const isText = walker.currentNode.textContent.trim() && element.checkVisibility({ visibilityProperty: true });
    if (isText) shown.push([walker.currentNode.textContent.trim(), contrast(element, getComputedStyle(element).color)]);
  }
  for (const input of within.querySelectorAll("input:not([type=file], [type=checkbox])")) {
    if (!input.checkVisibility()) continue;
    const part = input.value ? null : "::placeholder";
    if (input.value || input.placeholder) {
      shown.push([input.value || input.placeholder, contrast(input, getComputedStyle(input, part).color)]);
    }
  }
  if (shown.length < 5) throw new Error("hardly any text is shown");
  return shown.filter(([, found]) => found < 4.5);
}
