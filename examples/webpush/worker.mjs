// A service worker that shows the notifications of the channel webpush.
self.addEventListener("push", (event) => {
  const { id, title, body, icon, url } = event.data.json();
  // One that comes twice has the same id, and the second takes the place of the first.
  event.waitUntil(self.registration.showNotification(title, { body, icon, tag: id, data: { url } }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const { url } = event.notification.data;
  if (url) event.waitUntil(self.clients.openWindow(url));
});
