// subscribe asks the user for the permission, and adds this browser to the addresses of the user. Call it when a button is pressed.
export async function subscribe({ base, token, type, user, publicKey }) {
  const registration = await navigator.serviceWorker.register("/worker.mjs", { type: "module" });
  const subscription = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: publicKey });
  localStorage.browser ??= `b-${crypto.randomUUID()}`; // the same browser has one address, also after its subscription has changed
  const answer = await fetch(`${base}/v1/users/${type}/${encodeURIComponent(user)}`, {
    method: "PATCH",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify({ endpoints: { webpush: { [localStorage.browser]: { address: JSON.stringify(subscription) } } } }),
  });
  if (!answer.ok) throw new Error(await answer.text());
}
