import "/v1/expediter-inbox.js";
const box = document.querySelector("expediter-inbox"), items = [];
box.options = { pause: 1 };
box.addEventListener("item", (e) => document.title = `${items.push(e.detail.item.event_id)} items`);
box.addEventListener("refused", (e) => console.error(e.detail));
window.app = { box, items, root: box.shadowRoot };
