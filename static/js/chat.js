// A conversation: words appear as they come, a stop ends them on the engine. Without this the form does the same, slower.
"use strict";
(() => {
  const form = document.getElementById("chat");
  const turns = document.getElementById("turns");
  const nothing = document.getElementById("nothing-said");
  const trouble = document.getElementById("trouble");
  const announce = document.getElementById("announce");
  const send = form.querySelector("[data-chat-send]");
  const stop = form.querySelector("[data-chat-stop]");
  const fresh = document.querySelector("[data-chat-new]");
  const { said, before } = form.elements;
  const closed = send.disabled;
  let running = null;

  const one = (selector, from) => from.querySelector(selector);
  const copy = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);
  const three = (value, unit = "") => {
    if (typeof value !== "number") return "–";
    return `${Number.isInteger(value) ? value : Number(value.toPrecision(3))}${unit}`;
  };
  const history = () => { try { return JSON.parse(before.value || "[]"); } catch { return []; } };

  // The reader stays where they scrolled to; at the end the view runs along.
  const atEnd = () => turns.scrollHeight - turns.clientHeight - turns.scrollTop < 32;
  const growing = (change) => {
    const follow = atEnd();
    change();
    if (follow) turns.scrollTop = turns.scrollHeight;
  };

  const complain = (error) => {
    const box = copy("trouble-of");
    one("[data-message]", box).textContent = error.message;
    if (error.remedy) {
      one("[data-remedy]", box).textContent = error.remedy;
      one(".remedy", box).hidden = false;
    }
    growing(() => trouble.replaceChildren(box));
  };

  const busy = (yes) => {
    send.hidden = yes;
    stop.hidden = !yes;
    send.disabled = closed;
    fresh.hidden = yes || !turns.childElementCount;
  };

  // One answer on the page. All words are set as text, never as markup.
  class Turn {
    constructor(asked) {
      this.text = "";
      this.came = false;
      this.asked = copy("turn-user");
      one(".words", this.asked).textContent = asked;
      this.item = copy("turn-assistant");
      this.words = one("[data-answer]", this.item);
      this.thoughts = one(".thought", this.item);
      this.waiting = one("[data-waiting]", this.item);
      nothing.hidden = true;
      turns.append(this.asked, this.item);
      turns.scrollTop = turns.scrollHeight;
      const began = performance.now();
      const clock = one("[data-clock]", this.item);
      this.timer = setInterval(() => { clock.textContent = `${Math.round((performance.now() - began) / 1000)} s`; }, 1000);
    }

    add(text, into = this.words) {
      this.came = true;
      this.waiting.hidden = true;
      clearInterval(this.timer);
      growing(() => into.append(text));
    }

    take(event) {
      if (event.kind === "text") {
        this.text += event.text;
        this.add(event.text);
      } else if (event.kind === "thought") {
        this.thoughts.hidden = false;
        this.add(event.text, one(".words", this.thoughts));
      }
    }

    end(reason, figures = {}) {
      clearInterval(this.timer);
      this.item.classList.remove("working");
      const strip = one(".strip", this.item);
      const named = { stop: "reasonStop", length: "reasonLength", stopped: "reasonStopped", broke: "reasonBroke" }[reason];
      const shown = {
        first: three(figures.first_words_s, " s"), speed: three(figures.tokens_per_s), took: three(figures.took_s, " s"),
        tokens: `${three(figures.prompt_tokens)} · ${three(figures.completion_tokens)}`,
        reason: named ? strip.dataset[named] : reason || "–", node: figures.node || "–",
      };
      growing(() => {
        this.waiting.hidden = true;
        for (const [name, value] of Object.entries(shown)) one(`[data-${name}]`, strip).textContent = value;
        strip.hidden = false;
      });
    }

    remove() {
      clearInterval(this.timer);
      this.asked.remove();
      this.item.remove();
      nothing.hidden = turns.childElementCount > 0;
    }
  }

  async function* events(response) {
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = parts.pop();
      for (const part of parts) if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
    }
  }

  const ask = async (body, turn, signal) => {
    const headers = { Accept: "text/event-stream" };
    const response = await fetch(form.action, { method: "POST", body, headers, signal, redirect: "error" });
    if (!response.ok || !response.body) {
      const answer = response.headers.get("Content-Type")?.includes("json") ? await response.json() : {};
      return { error: answer.error || { message: `${form.dataset.panelAway} (${response.status})` } };
    }
    let began = {};
    for await (const event of events(response)) {
      if (event.kind === "began") began = event;
      else if (event.kind === "done" || event.kind === "error") return event;
      else turn.take(event);
    }
    return { ...began, error: { message: form.dataset.panelBroke } };
  };

  const say = async () => {
    const words = said.value;
    const plain = form.elements.mode.value === "plain";
    const body = new URLSearchParams(new FormData(form));
    const turn = new Turn(words);
    running = new AbortController();
    trouble.replaceChildren();
    said.value = "";
    busy(true);
    let end;
    try {
      end = await ask(body, turn, running.signal);
    } catch (error) {
      end = running.signal.aborted ? { stopped: true } : { error: { message: turn.came ? form.dataset.panelBroke : form.dataset.panelAway } };
    }
    running = null;
    if (end.error) complain(end.error);
    // Where nothing came, the message goes back to be sent again; else what came stays and belongs to the conversation.
    if (!turn.came && (end.error || end.stopped)) {
      turn.remove();
      if (!said.value) said.value = words;
    } else {
      turn.end(end.stopped ? "stopped" : end.error ? "broke" : end.finish_reason, end);
      if (!plain && turn.text) before.value = JSON.stringify([...history(), { role: "user", content: words }, { role: "assistant", content: turn.text }]);
    }
    busy(false);
    announce.textContent = end.error ? "" : end.stopped ? form.dataset.stopped : form.dataset.complete;
    said.focus();
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running || closed) return;
    if (!said.value.trim()) { said.focus(); return; }
    if (!form.reportValidity()) return;
    say();
  });
  said.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  stop.addEventListener("click", () => running?.abort());
  addEventListener("pagehide", () => running?.abort());
  fresh.addEventListener("click", () => {
    turns.replaceChildren();
    trouble.replaceChildren();
    before.value = "";
    nothing.hidden = false;
    busy(false);
    said.focus();
  });

  one("[data-chat-keys]", form).hidden = false;
  busy(false);
  turns.scrollTop = turns.scrollHeight;
})();
