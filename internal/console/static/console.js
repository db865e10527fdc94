// Keeps a page up to date. Everything works without it.
(() => {
  "use strict";
  const main = () => document.querySelector("main[sse-connect]");
  let source, lost = false;

  const say = (state) => {
    const at = document.getElementById("link");
    if (at) { at.textContent = state; }
  };

  // The extension makes its sources here. A hidden page has none; one that comes back reads what it missed.
  htmx.createEventSource = (url) => {
    source = new EventSource(url);
    source.addEventListener("open", () => {
      say("live");
      if (lost) { htmx.trigger(main(), "refresh"); }
      lost = false;
    });
    source.addEventListener("changed", () => { say("live"); });
    source.addEventListener("error", () => {
      lost = true;
      say("connection lost, trying again");
    });
    return source;
  };
  document.addEventListener("visibilitychange", () => {
    if (!main() || !source) { return; }
    if (document.hidden) {
      source.close();
      lost = true;
      say("paused");
    } else if (source.readyState === EventSource.CLOSED) {
      htmx.trigger(main(), "htmx:afterProcessNode");
    }
  });

  // The page is not reloaded while an element in it has the focus or was filled in.
  const used = (live) => live.contains(document.activeElement) ||
    [...live.querySelectorAll("input, textarea")].some((i) => i.value !== i.defaultValue || i.checked !== i.defaultChecked);
  let again;
  document.addEventListener("htmx:beforeSwap", (e) => {
    if (e.target.id !== "live") { return; }
    clearTimeout(again);
    if (used(e.target)) {
      e.detail.shouldSwap = false;
      say("paused while it is used");
      again = setTimeout(() => htmx.trigger(main(), "refresh"), 5000);
    } else if (again) {
      again = undefined;
      say("live");
    }
  });

  // Times are those of the reader's zone, with UTC in the title.
  const local = () => document.querySelectorAll("time[datetime]:not([data-local])").forEach((t) => {
    const at = new Date(t.dateTime), day = at.toLocaleDateString("sv");
    const zone = at.toLocaleTimeString("en", {timeZoneName: "short"}).split(" ").pop();
    const text = at.toLocaleTimeString("sv") + " " + zone, whole = day + " " + text;
    t.dataset.local = whole;
    t.title = whole + ", " + t.dateTime;
    if (t.textContent.endsWith("UTC")) {
      t.textContent = t.textContent.includes("-") || day !== new Date().toLocaleDateString("sv") ? whole : text;
    }
  });
  local();
  document.addEventListener("htmx:afterSwap", local);

  // Keys: those of the dialog in the layout.
  const rows = () => [...document.querySelectorAll("main tbody tr a, main [data-row]")];
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]") || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) { return; }
    const all = rows(), at = all.indexOf(document.activeElement);
    switch (e.key) {
    case "/": {
      const search = document.querySelector("main input[type=search], main input[type=text]");
      if (search) { e.preventDefault(); search.focus(); }
      break;
    }
    case "j": all[Math.min(at + 1, all.length - 1)]?.focus(); break;
    case "k": all[Math.max(at - 1, 0)]?.focus(); break;
    case "r": location.reload(); break;
    case "?": document.getElementById("keys").showModal(); break;
    }
  });
})();
