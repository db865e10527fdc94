// Package webpush sends messages to browsers, through the push service that each browser chose (RFC 8030): encrypted for
// that browser alone (RFC 8291), and signed by this service (VAPID, RFC 8292).
//
// An address is a browser's subscription as JSON:
//
//	{"endpoint":"https://push.example/abc","keys":{"p256dh":"…","auth":"…"}}
//
// The browser's service worker gets JSON. The id is the same in every attempt, and is meant for the notification's tag, so
// that a second notification replaces the first:
//
//	{"id":"ntf_…","title":"…","body":"…","event_id":"…","event_type":"…","url":"…","icon":"…","data":…}
//
// url, icon and data are present if the template has them, see the package template. A body that is too long is cut. Data that does
// not fit is an error.
//
// The message's id is also its Topic, so that a push service that still holds an earlier attempt replaces it. An answer 404 or
// 410 means that the subscription is gone.
package webpush
