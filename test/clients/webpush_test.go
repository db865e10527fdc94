package clients_test

import (
	"os/exec"
	"testing"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// browser runs the service worker and the page of the documents with what a browser gives them, and prints what they do.
const browser = `
const handlers = {}, waits = [];
globalThis.self = {
  addEventListener: (kind, handler) => { handlers[kind] = handler; },
  registration: { showNotification: (title, options) => console.log("shows", title, options.body, options.tag, options.data.url) },
  clients: { openWindow: (url) => console.log("opens", url) },
};
await import(process.argv[1] + "/worker.mjs");
const text = { id: "m-1", title: "Ready", body: "Your table", url: "https://shop.example/7" };
handlers.push({ data: { json: () => text }, waitUntil: (p) => waits.push(p) });
handlers.notificationclick({ notification: { close: () => console.log("closes"), data: text }, waitUntil: (p) => waits.push(p) });
await Promise.all(waits);
const subscribed = { endpoint: "https://push.example/1", keys: { auth: "a", p256dh: "p" } };
Object.defineProperty(globalThis, "navigator", { value: { serviceWorker: { register: async () => (
  { pushManager: { subscribe: async (o) => { console.log(o.applicationServerKey); return subscribed; } } }) } } });
globalThis.localStorage = { browser: "b-1" };
globalThis.fetch = async (url, r) => { console.log(r.method, url, r.headers.Authorization, r.body); return { ok: true }; };
const { subscribe } = await import(process.argv[1] + "/subscribe.mjs");
await subscribe({ base: "https://n.example", token: "t", type: "CUSTOMER", user: "a/b", publicKey: "key" });
`

func TestBrowsersOfTheDocumentsGetPushes(t *testing.T) {
	t.Parallel()
	node := testbed.Node.Find(t)[0]
	cmd := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", browser, "../../examples/webpush")
	out, err := cmd.CombinedOutput()
	check.OK(t, err)
	check.Equal(t, string(out), `shows Ready Your table m-1 https://shop.example/7
closes
opens https://shop.example/7
key
PATCH https://n.example/v1/users/CUSTOMER/a%2Fb Bearer t {"endpoints":{"webpush":{"b-1":{"address":"{\"endpoint\":\"https://push.example/1\",\"keys\":{\"auth\":\"a\",\"p256dh\":\"p\"}}"}}}}
`)
}
