// A canvas to draw on. Its value is the drawing as a data URL after each stroke; an empty value clears it.
const canvas = element.querySelector("canvas");
const pen = canvas.getContext("2d");
let drawing = false;

const clear = () => {
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, canvas.width, canvas.height);
};
const share = (value) => {
  props.value = value;
  trigger("input");
};
const place = (event) => {
  const box = canvas.getBoundingClientRect();
  return [
    ((event.clientX - box.left) * canvas.width) / box.width,
    ((event.clientY - box.top) * canvas.height) / box.height,
  ];
};

pen.lineWidth = canvas.width / 22; // about as thick as the strokes of the doodles
pen.lineCap = pen.lineJoin = "round";
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  drawing = true;
  pen.beginPath();
  pen.moveTo(...place(event));
  pen.lineTo(...place(event));
  pen.stroke();
});
canvas.addEventListener("pointermove", (event) => {
  if (!drawing) return;
  pen.lineTo(...place(event));
  pen.stroke();
});
for (const end of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(end, () => {
    if (drawing) share(canvas.toDataURL("image/png"));
    drawing = false;
  });
}
element.querySelector("button").addEventListener("click", () => {
  clear();
  share("");
});
watch("value", () => {
  if (!props.value) clear();
});
clear();
