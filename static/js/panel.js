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

  // The server's clock: ages are right on machines whose own clock is not.
  let ahead = 0;
  const now = () => Date.now() + ahead;
  const setClock = (epoch, here = Date.now()) => { ahead = epoch * 1000 - here; };
  const [arrival] = performance.getEntriesByType("navigation");
  // A page from the browser's own store brings an old time with it.
  if (body.dataset.now && arrival?.responseStart && arrival.type !== "back_forward") {
    setClock(Number(body.dataset.now), performance.timeOrigin + arrival.responseStart);
  }

  // Times: the server wrote them once, they age here. So do figures, which are marked when they are not current.
  const staleAfter = 5;
  const linkState = one("#link-state");
  const linkAge = linkState && one(".age", linkState);
  let blind = false; // there are figures, and none comes
  const [second, minute, hour, day] = (body.dataset.units || "s min h d").split(" ");
  const span = (seconds) => {
    for (const [unit, length] of [[day, 86400], [hour, 3600], [minute, 60]]) {
      if (seconds >= length * 1.5) return `${Math.round(seconds / length)} ${unit}`;
    }
    return `${Math.round(seconds)} ${second}`;
  };
  const write = (element, words) => { if (element.textContent !== words) element.textContent = words; };
  const renew = (time, seen) => {
    const at = new Date(seen * 1000).toISOString();
    time.dateTime = at;
    time.title = `${at.slice(0, 19).replace("T", " ")} UTC`;
  };
  const age = () => {
    // Words that the socket does not bring are as fresh as the figures that they are about.
    for (const words of all("[data-heard]")) {
      const seen = Number(document.getElementById(words.dataset.heard)?.dataset.seen);
      const time = one("time[data-relative]", words);
      if (time && seen * 1000 > Date.parse(time.dateTime)) renew(time, seen);
    }
    for (const time of all("time[data-relative]")) {
      const seconds = (Date.parse(time.dateTime) - now()) / 1000;
      write(time, (seconds > 0.5 ? body.dataset.in : body.dataset.ago).replace("{}", span(Math.abs(seconds))));
    }
    let newest = 0;
    for (const item of all("[data-seen]")) {
      const seen = Number(item.dataset.seen);
      newest = Math.max(newest, seen);
      item.classList.toggle("stale", now() / 1000 - seen > staleAfter);
    }
    blind = newest > 0 && now() / 1000 - newest > staleAfter;
    showLink();
    if (linkAge) write(linkAge, newest ? span(Math.max(0, now() / 1000 - newest)) : "");
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

  // Live parts: fetched again when the socket says that something happened, and from time to time in any case:
  // quickly without a socket, seldom with one, hardly ever while nobody looks.
  const hiddenPace = 30;
  const refreshGap = 700;
  const silence = 25000; // the server says something every ten seconds
  const asked = new WeakMap();
  const lost = one("#lost");
  const live = (element) => element?.closest?.("[data-live]");
  let socket = null;
  let answering = true;
  const showLink = () => {
    if (!linkState || !one("[data-live], .more-lines, [ws-connect]")) return;
    const line = !answering ? "lost" : socket ? "live" : "polling";
    const state = blind && answering ? "blind" : line;
    const words = one("[role=status]", linkState);
    linkState.hidden = false;
    linkState.dataset.line = line;
    linkState.title = state === "blind" ? words.dataset.blindSays : "";
    linkState.classList.toggle("out", state === "lost");
    linkState.classList.toggle("blind", state === "blind");
    linkState.classList.toggle("polling", state === "polling");
    write(words, words.dataset[`${state}Words`]);
    if (lost) lost.hidden = answering;
  };
  // What moves without a figure of its own, such as a start, names a pace.
  const slowPace = (element) => Number(one("[data-pace]", element)?.dataset.pace || element.dataset.slow);
  const connected = (yes) => { answering = yes; showLink(); };
  body.addEventListener("htmx:beforeRequest", (event) => {
    const element = event.target;
    if (!element.matches("[data-live]")) return;
    const time = performance.now();
    const polled = !event.detail.requestConfig.triggeringEvent;
    const pace = document.hidden ? hiddenPace : polled && socket && answering ? slowPace(element) : 0;
    if (time - (asked.get(element) || 0) < pace * 1000 - 500) event.preventDefault();
    else asked.set(element, time);
  });
  const refresh = () => { for (const element of all("[data-live]")) htmx.trigger(element, "refresh"); };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
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
    const date = Date.parse(xhr?.getResponseHeader?.("Date")) + 500; // it has no fractions
    if (!socket && Math.abs(date - now()) > 2000) setClock(date / 1000);
  });
  body.addEventListener("htmx:sendError", () => connected(false));
  body.addEventListener("htmx:timeout", () => connected(false));

  // The socket: htmx's extension opens it, and again after a pause of which nobody knows how long it will be.
  let attempts = 0;
  let heard = 0;
  let refreshed = -refreshGap;
  let waitingRefresh = 0;
  htmx.config.wsReconnectDelay = () => Math.random() * Math.min(1000 * 2 ** attempts++, 30000);
  const refreshSoon = () => {
    waitingRefresh ||= setTimeout(() => {
      waitingRefresh = 0;
      refreshed = performance.now();
      refresh();
    }, Math.max(0, refreshed + refreshGap - performance.now()));
  };
  body.addEventListener("htmx:wsOpen", (event) => {
    socket = { itself: event.detail.event.target, again: event.detail.socketWrapper.reconnect };
    heard = performance.now();
    refreshSoon(); // what happened since the page was written or the last socket was lost
    showLink();
  });
  body.addEventListener("htmx:wsClose", (event) => {
    const { target, code } = event.detail.event;
    if (socket && target !== socket.itself) return;
    socket = null;
    if (code === 4401) location.reload(); // somebody else by now, or nobody, or with other rights
    showLink();
  });
  body.addEventListener("htmx:wsBeforeMessage", (event) => {
    // Not left to the extension: what it replaces loses its focus and its hints, every second.
    event.preventDefault();
    heard = performance.now();
    const text = event.detail.message;
    if (!text.startsWith("{")) { showFigures(text); return; }
    const said = JSON.parse(text);
    if (said.now) { attempts = 0; setClock(said.now); }
    if (said.refresh) refreshSoon();
    age();
  });
  const listen = () => {
    if (!socket || performance.now() - heard < silence) return;
    const { again } = socket; // nobody may have told us that the line is dead
    socket = null;
    showLink();
    again();
  };

  // Figures: only what is different is written into the page.
  const showFigures = (html) => {
    const box = document.createElement("template");
    box.innerHTML = html;
    for (const fresh of [...box.content.children]) {
      const shown = document.getElementById(fresh.id);
      fresh.removeAttribute("hx-swap-oob");
      if (fresh.id && shown) become(shown, fresh);
    }
    age();
  };
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const fade = (element) => {
    // Only what is written as a figure; hundreds of cells would make a map flicker and a browser sweat.
    if (still.matches || document.hidden || !element?.matches(".band b, .gauge b, .readings b, .node-line b, .totals dd, .ledger td")) return;
    if (!element.closest(".map.many")) element.animate([{ opacity: 0.3 }, { opacity: 1 }], 150);
  };
  const become = (shown, fresh) => {
    if (shown.nodeName !== fresh.nodeName) { shown.replaceWith(fresh); return; }
    if (shown.nodeType !== Node.ELEMENT_NODE) {
      if (shown.data === fresh.data) return;
      shown.data = fresh.data;
      if (shown.nodeType === Node.TEXT_NODE) fade(shown.parentElement);
      return;
    }
    const own = (name) => name === "open" && shown.nodeName === "DETAILS"; // people open and close them
    for (const { name } of [...shown.attributes]) if (!fresh.hasAttribute(name) && !own(name)) shown.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (shown.getAttribute(name) !== value && !own(name)) shown.setAttribute(name, value);
    const [before, after] = [[...shown.childNodes], [...fresh.childNodes]];
    after.forEach((child, place) => { if (before[place]) become(before[place], child); else shown.append(child); });
    for (const child of before.slice(after.length)) child.remove();
  };

  // What people have opened, ticked or scrolled stays as it is when a live part changes.
  let kept = null;
  const lineOf = (cell) => `line-${cell.id.split("-")[1]}`; // a cell is as old as its node's line
  const alike = (one, other) => one.nodeName === other.nodeName && one.getAttribute("href") === other.getAttribute("href") && one.id === other.id;
  const placeOf = (focused, element) => ({ focused, place: all(focused.nodeName, element).filter((item) => alike(item, focused)).indexOf(focused) });
  const focusAgain = ({ focused, place }, element) => {
    if (document.activeElement === document.body) all(focused.nodeName, element).filter((item) => alike(item, focused))[place]?.focus({ preventScroll: true });
  };
  const said = (from) => all("[data-announce]", from).map((item) => item.textContent.trim().replace(/\s+/g, " ")).join(", ");
  body.addEventListener("htmx:beforeSwap", (event) => {
    const element = live(event.detail.target);
    if (!element) return;
    kept = {
      said: said(element),
      open: all("details[id]", element).filter((item) => item.open).map((item) => item.id),
      figures: all("[id][data-seen]", element),
      cells: Map.groupBy(all(".cell-figures[id]", element), lineOf),
      focused: element.contains(document.activeElement) ? placeOf(document.activeElement, element) : null,
      ticked: all("input[type=checkbox]:checked", element).map((item) => item.value),
      scrolled: all("[data-stick]", element).map((item) => [item.id, item.scrollTop, item.scrollHeight - item.clientHeight - item.scrollTop < 8]),
    };
  });
  body.addEventListener("htmx:afterSwap", (event) => {
    prepare(event.detail.target);
    const element = live(event.detail.target);
    if (!element || !kept) return;
    for (const old of kept.figures) {
      const fresh = document.getElementById(old.id); // may have been written before what was pushed meanwhile
      if (!fresh || Number(fresh.dataset.seen || 0) >= Number(old.dataset.seen)) continue;
      fresh.replaceWith(old);
      for (const cell of kept.cells.get(old.id) || []) document.getElementById(cell.id)?.replaceWith(cell);
    }
    if (kept.focused) focusAgain(kept.focused, element);
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
  setInterval(() => { age(); listen(); }, 1000);
  showLink();
})();
