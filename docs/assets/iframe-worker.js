// A page that was opened as a file may not start a worker: the search then runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.receive = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = new Promise((done) => this.frame.addEventListener("load", done, { once: true }));
      this.frame.srcdoc =
        "<script>window.postMessage = (data) => frameElement.receive(data);</script>" +
        `<script src="${url}"></script>`;
      document.body.appendChild(this.frame);
    }
    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
