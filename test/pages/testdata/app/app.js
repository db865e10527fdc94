const asked = new URLSearchParams(location.search), at = document.documentElement, box = document.createElement(asked.get("element") ?? "expediter-inbox");
Object.assign(at, { dir: asked.get("dir") ?? "ltr", lang: asked.get("lang") ?? "en" });
at.style.colorScheme = asked.get("scheme") ?? "light dark";
for (const [name, value] of Object.entries({ user: "ada", type: "CUSTOMER", limit: asked.get("limit") ?? "1000" })) box.setAttribute(name, value);
for (const place of ["header", "main"]) if (place === "header" ^ box.localName === "expediter-inbox") document.querySelector(place).append(box);
const count = async (...of) => {
  const answer = await fetch(...of);
  if (answer.status === 401) app.denied++;
  return answer;
};
Object.assign(box, { options: { pause: 1, fetch: count }, labels: { markAll: "Read all" } }); // which the class finds, although it comes later
const app = { box, items: [], events: [], refused: [], denied: 0 };
for (const name of ["item", "itemclick", "unread", "failed", "opened", "closed"])
  document.addEventListener(name, (e) => name === "item" ? app.items.push(e.detail.item.event_id) : app.events.push(name + (e.composed ? "" : " not composed")));
await import("/v1/expediter-inbox.js");
app.root = box.shadowRoot;
app.part = (name) => app.root.querySelector(`[part~=${name}]`);
app.all = (name) => [...app.root.querySelectorAll(`[part~=${name}]`)];
window.app = app;
