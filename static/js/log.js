// Following a log: at the end it runs along, scrolled up it waits.
"use strict";
(() => {
  const box = document.getElementById("log");
  const lines = document.getElementById("lines");
  const button = document.querySelector("[data-follow]");
  const words = button?.querySelector("span");
  const first = document.querySelector("[data-first-fault]");
  let following = !location.hash;

  const show = () => {
    button.setAttribute("aria-pressed", String(following));
    words.textContent = following ? words.dataset.on : words.dataset.off;
    first.hidden = !lines.querySelector(".fault");
  };
  const toEnd = () => { box.scrollTop = box.scrollHeight; };
  const atEnd = () => box.scrollHeight - box.clientHeight - box.scrollTop < 24;

  box.addEventListener("scroll", () => {
    if (following !== atEnd()) { following = atEnd(); show(); }
  });
  button.addEventListener("click", () => { following = !following; if (following) toEnd(); show(); });
  first.addEventListener("click", () => {
    following = false;
    lines.querySelector(".fault")?.scrollIntoView({ block: "center" });
    show();
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (!lines.contains(event.detail.target) && event.detail.target !== lines) return;
    if (following) toEnd();
    show();
  });
  if (button && lines.querySelector(".more-lines")) button.hidden = false;
  if (following) toEnd();
  show();
})();
