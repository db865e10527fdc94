import { Enricher, merge } from "/v1/expediter-inbox.js";
const box = document.querySelector("expediter-inbox"), items = [];
box.options = { pause: 1 };
box.addEventListener("item", (e) => document.title = `${items.push(e.detail.item.event_id)} items`);
box.addEventListener("refused", (e) => console.error(e.detail));
const enricher = new Enricher({ url: "", pause: 1 });
async function patches(requestId, names) {
  const r = await enricher.enrich({ requestId, results: names.map((name, i) => ({ placeId: name, name: "Kitchen " + name, address: "Harbour Road " + (i + 1), cityText: "Haifa" })) }), told = {}, types = [];
  const tell = (p) => { if (p.providers.wolt.status !== "PENDING") told[p.placeId] = (told[p.placeId] ?? 0) + 1; };
  for await (const u of enricher.updates(r.requestId)) {
    types.push(u.type);
    if (u.type === "snapshot") u.places.forEach(tell); else if (u.type === "RESULT_PATCH") tell({ placeId: u.placeId, ...u.patch });
    merge(r.results, u);
  }
  const once = names.every((name) => told[name] === 1) && r.results.every((p) => p.providers.wolt.status === "FOUND");
  return once && /^snapshot(,complete)?$/.test(types.filter((type) => type !== "RESULT_PATCH").join()) ? "once" : JSON.stringify([types, told, r.results]);
}
window.app = { box, items, patches, root: box.shadowRoot };
