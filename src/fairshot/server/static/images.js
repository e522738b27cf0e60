// Images that a person gives: drawn, chosen, dropped, pasted, photographed or recorded.
import { counted, find, make, onClick } from "./dom.js";

const FRAME_MILLISECONDS = 500; // between two frames of the camera that are answered or recorded
const MOST_IMAGES = 20; // that one request may bring

const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

function toFile(canvas, type, name) {
  return new Promise((done) => canvas.toBlob((blob) => done(new File([blob], name, { type })), type, 0.95));
}

export class ImageInput {
  // `changed` is called with the images after each change, `live` with a frame while the camera is open.
  constructor(element, changed, live = null) {
    this.element = element;
    this.changed = changed;
    this.live = live;
    this.images = [];
    this.multiple = find("input", element).multiple;
    this.canvas = find("canvas", element) && new Drawing(find("canvas", element));
    const input = find("input", element);
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = ""; // the same file may be chosen again
    });
    onClick(find(".remove", element), () => this.set([]));
    onClick(find(".clear", element), () => this.clear());
    onClick(find(".camera", element), () => this.openCamera());
    onClick(find(".capture", element), () => this.capture());
    if (find(".record", element)) this.holdToRecord(find(".record", element));
    if (!navigator.mediaDevices) find(".camera", element)?.remove(); // browsers have it on https or localhost
  }

  add(images) {
    if (!images.length) return;
    if (!this.multiple) this.canvas?.clear(); // one image at a time: the file, not the drawing
    this.set(this.multiple ? [...this.images, ...images] : images.slice(0, 1));
  }

  clear() {
    this.canvas.clear();
    if (!this.multiple) this.set([]);
  }

  set(images) {
    this.images = images;
    this.showImages(images);
    this.changed(images);
  }

  showImages(images) {
    const preview = find(".preview", this.element);
    for (const image of preview.querySelectorAll("img")) URL.revokeObjectURL(image.src);
    preview.replaceChildren(...images.map((image) => this.thumbnail(image)));
    const remove = find(".remove", this.element);
    if (remove) remove.hidden = !images.length;
  }

  thumbnail(image) {
    const picture = Object.assign(make("img"), { src: URL.createObjectURL(image), alt: image.name });
    picture.addEventListener("load", () => picture.classList.toggle("stored", isLightOnDark(picture)));
    if (!this.multiple) return picture;
    const button = make("button", "thumbnail", picture);
    button.title = `Remove ${image.name}`;
    button.addEventListener("click", () => this.set(this.images.filter((other) => other !== image)));
    return button;
  }

  async openCamera() {
    const video = find("video", this.element);
    if (video.srcObject) return this.closeCamera();
    try {
      video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch (error) {
      find(".camera", this.element).textContent = `No camera (${error.message})`;
      return;
    }
    await video.play();
    this.showCamera(true);
    if (this.live) this.answerLive(video.srcObject); // goes on by itself until the camera is closed
  }

  closeCamera() {
    const video = find("video", this.element);
    if (!video?.srcObject) return;
    for (const track of video.srcObject.getTracks()) track.stop();
    video.srcObject = null;
    this.showCamera(false);
  }

  showCamera(open) {
    for (const each of ["video", ".capture", ".record", ".camera-note"]) {
      const element = find(each, this.element);
      if (element) element.hidden = !open;
    }
    find(".camera", this.element).textContent = open ? "Close the camera" : "Use the camera";
  }

  frame() {
    const video = find("video", this.element);
    const canvas = Object.assign(make("canvas"), { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    return toFile(canvas, "image/jpeg", "camera.jpg");
  }

  async capture() {
    const frame = await this.frame();
    if (!this.multiple) this.closeCamera();
    this.add([frame]);
  }

  // Show a frame of the camera in place of the camera, without asking it again.
  freeze(frame) {
    this.closeCamera();
    this.images = [frame];
    this.showImages(this.images);
  }

  // Answer one frame after the other, while the camera is open: the next begins when the last is answered.
  async answerLive(stream) {
    const isOpen = () => find("video", this.element).srcObject === stream;
    const answer = async () => this.live(await this.frame(), isOpen);
    while (isOpen()) await Promise.all([answer(), wait(FRAME_MILLISECONDS)]);
  }

  // Take a photo every half second while a button is held, by the mouse, a finger, Space or Enter.
  holdToRecord(button) {
    let recording = null; // an object per time the button is held, so that an earlier loop ends when it is held again
    const start = async () => {
      if (recording) return;
      const own = (recording = {});
      button.classList.add("recording");
      while (recording === own && this.images.length < MOST_IMAGES) {
        this.add([await this.frame()]);
        button.textContent = `Recording: ${counted(this.images.length, "photo")}`;
        await wait(FRAME_MILLISECONDS);
      }
      if (recording && recording !== own) return; // held again
      button.classList.remove("recording");
      button.textContent = this.images.length < MOST_IMAGES ? "Hold to record" : `${MOST_IMAGES} photos: enough`;
    };
    const stop = () => (recording = null);
    const isKey = ({ key }) => key === " " || key === "Enter";
    button.addEventListener("pointerdown", start);
    button.addEventListener("keydown", (event) => isKey(event) && start());
    button.addEventListener("keyup", (event) => isKey(event) && stop());
    for (const end of ["pointerup", "pointercancel", "pointerleave", "blur"]) button.addEventListener(end, stop);
    button.addEventListener("contextmenu", (event) => event.preventDefault()); // a long touch opens no menu
  }
}

// Whether the border of a picture is dark, as that of a drawing in white ink is.
function isLightOnDark(picture) {
  const side = 16;
  const pen = Object.assign(make("canvas"), { width: side, height: side }).getContext("2d");
  pen.drawImage(picture, 0, 0, side, side);
  const { data } = pen.getImageData(0, 0, side, side);
  const border = [];
  for (let i = 0; i < side; i += 1) {
    for (const pixel of [i, side * (side - 1) + i, side * i, side * i + side - 1]) {
      const [red, green, blue, alpha] = data.slice(4 * pixel, 4 * pixel + 4);
      border.push((alpha / 255) * ((red + green + blue) / 3) + 255 - alpha);
    }
  }
  return border.sort((a, b) => a - b)[border.length / 2] <= 127;
}

// A canvas to draw on with the mouse, a finger or a pen.
class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.pen.lineWidth = canvas.width / 22; // about as thick as the strokes of the doodles
    this.pen.lineCap = this.pen.lineJoin = "round";
    this.finished = () => {}; // called after each stroke
    let drawing = false;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      drawing = true;
      this.pen.beginPath();
      this.pen.moveTo(...this.position(event));
      this.line(event);
    });
    canvas.addEventListener("pointermove", (event) => drawing && this.line(event));
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, () => {
        if (drawing) this.finished();
        drawing = false;
      });
    }
    this.clear();
  }

  position(event) {
    const box = this.canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * this.canvas.width) / box.width,
      ((event.clientY - box.top) * this.canvas.height) / box.height,
    ];
  }

  line(event) {
    this.empty = false;
    this.pen.lineTo(...this.position(event));
    this.pen.stroke();
  }

  clear() {
    this.empty = true;
    this.pen.fillStyle = "#fff";
    this.pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
  }

  file() {
    return toFile(this.canvas, "image/png", "drawing.png");
  }
}
