// Small conveniences; every page works without them. Loaded once, kept free of state that a reload would lose.
"use strict";
(() => {
  const root = document.documentElement;
  const body = document.body;
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  root.classList.add("scripts");

  // Theme: a cookie, so that the server draws the page right at once.
  const themes = ["auto", "light", "dark"];
  const themeSwitch = one("[data-theme-switch]");
  const showTheme = () => {
    if (!themeSwitch) return;
    const now = root.dataset.theme || "auto";
    themeSwitch.dataset.now = now;
    const words = themeSwitch.dataset[`words${now[0].toUpperCase()}${now.slice(1)}`];
    themeSwitch.title = words;
    one(".unseen", themeSwitch).textContent = words;
    themeSwitch.hidden = false;
  };
  themeSwitch?.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % themes.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    const life = next === "auto" ? 0 : 31536000;
    document.cookie = `pilothouse_theme=${next}; path=/; max-age=${life}; samesite=lax`;
    showTheme();
  });

  // Times: the server wrote them once, they age here.
  const [second, minute, hour, day] = (body.dataset.units || "s min h d").split(" ");
  const span = (seconds) => {
    for (const [unit, length] of [[day, 86400], [hour, 3600], [minute, 60]]) {
      if (seconds >= length * 1.5) return `${Math.round(seconds / length)} ${unit}`;
    }
    return `${Math.round(seconds)} ${second}`;
  };
  const age = () => {
    for (const time of all("time[data-relative]")) {
      const seconds = (Date.parse(time.dateTime) - Date.now()) / 1000;
      const words = (seconds > 0 ? body.dataset.in : body.dataset.ago).replace("{}", span(Math.abs(seconds)));
      if (time.textContent !== words) time.textContent = words;
    }
  };

  // Buttons that need scripts are hidden until here.
  const prepare = (from = document) => {
    for (const button of all("[data-copy][hidden], [data-tick-all][hidden], [data-shortcuts][hidden]", from)) button.hidden = false;
    for (const box of all("[data-stick]", from)) box.scrollTop = box.scrollHeight;
  };

  const copy = async (button) => {
    const source = document.getElementById(button.dataset.copy);
    const words = one("span", button);
    try {
      await navigator.clipboard.writeText(source.textContent);
      const before = words.textContent;
      words.textContent = body.dataset.copied;
      setTimeout(() => { words.textContent = before; }, 1500);
    } catch {
      getSelection().selectAllChildren(source); // no clipboard over plain http: at least it is chosen
    }
  };

  const dialog = one("#dialog");
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-dialog], [data-close], [data-fill], [data-tick-all], [data-shortcuts]");
    for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    if (!target) return;
    if (target.dataset.copy) copy(target);
    else if (target.dataset.fill) document.getElementById(target.dataset.fill).value = target.dataset.value;
    else if (target.dataset.tickAll) for (const box of all(`tr:not(.changed) input[name="${target.dataset.tickAll}"]`)) box.checked = true;
    else if ("shortcuts" in target.dataset) one("#shortcuts").showModal();
    else if ("close" in target.dataset && dialog?.open) { event.preventDefault(); dialog.close(); }
    else if ("dialog" in target.dataset && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      htmx.ajax("GET", target.href, { target: "#dialog-body", swap: "innerHTML" }).then(() => dialog.showModal());
    }
  });

  // Keyboard: g and a letter, ? for the list.
  let waiting = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (event.key === "?") one("#shortcuts")?.showModal();
    else if (event.key === "g") waiting = Date.now();
    else if (Date.now() - waiting < 1500) {
      waiting = 0;
      one(`[data-key="${CSS.escape(event.key)}"]`)?.click();
    }
  });

  // Live parts: sent again only when they say something new; slower while nobody looks.
  const hiddenEvery = 15;
  const missed = new WeakMap();
  const linkState = one("#link-state");
  const lost = one("#lost");
  const live = (element) => element?.closest?.("[data-live]");
  const connected = (yes) => {
    if (!linkState || !one("[data-live], .more-lines")) return;
    linkState.classList.toggle("out", !yes);
    linkState.textContent = yes ? linkState.dataset.liveWords : linkState.dataset.lostWords;
    if (lost) lost.hidden = yes;
  };
  body.addEventListener("htmx:beforeRequest", (event) => {
    if (!live(event.target) || !document.hidden) return;
    const count = (missed.get(event.target) || 0) + 1;
    missed.set(event.target, count % hiddenEvery);
    if (count < hiddenEvery) event.preventDefault();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) for (const element of all("[data-live]")) htmx.trigger(element, "refresh");
  });
  body.addEventListener("htmx:configRequest", (event) => {
    const element = live(event.target);
    if (element?.dataset.digest) event.detail.headers["X-Digest"] = element.dataset.digest;
  });
  body.addEventListener("htmx:afterRequest", (event) => {
    const { xhr, failed } = event.detail;
    const element = live(event.target);
    if (element || event.target.closest?.(".more-lines")) connected(!failed && xhr.status < 500);
    const digest = xhr?.getResponseHeader?.("X-Digest");
    if (element && digest) element.dataset.digest = digest;
  });
  body.addEventListener("htmx:sendError", () => connected(false));
  body.addEventListener("htmx:timeout", () => connected(false));

  // What people have opened, ticked or scrolled stays as it is when a live part changes.
  let kept = null;
  const said = (from) => all("[data-announce]", from).map((item) => item.textContent.trim().replace(/\s+/g, " ")).join(", ");
  body.addEventListener("htmx:beforeSwap", (event) => {
    const element = live(event.detail.target);
    if (!element) return;
    kept = {
      said: said(element),
      open: all("details[id]", element).filter((item) => item.open).map((item) => item.id),
      ticked: all("input[type=checkbox]:checked", element).map((item) => item.value),
      scrolled: all("[data-stick]", element).map((item) => [item.id, item.scrollTop, item.scrollHeight - item.clientHeight - item.scrollTop < 8]),
    };
  });
  body.addEventListener("htmx:afterSwap", (event) => {
    prepare(event.detail.target);
    const element = live(event.detail.target);
    if (!element || !kept) return;
    for (const id of kept.open) if (document.getElementById(id)) document.getElementById(id).open = true;
    for (const box of all("input[type=checkbox]", element)) if (kept.ticked.includes(box.value)) box.checked = true;
    for (const [id, top, atEnd] of kept.scrolled) if (document.getElementById(id) && !atEnd) document.getElementById(id).scrollTop = top;
    const now = said(element);
    if (now && kept.said && now !== kept.said) {
      one("#announce").textContent = now;
      for (const item of all("[data-announce]", element)) item.classList.add("fresh");
    }
    kept = null;
    age();
  });

  showTheme();
  prepare();
  age();
  setInterval(age, 1000);
  connected(true);
})();
