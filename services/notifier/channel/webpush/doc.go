// Package webpush sends messages to browsers, through the push service that each browser chose (RFC 8030): encrypted for
// that browser alone (RFC 8291), and in our name (VAPID, RFC 8292).
//
// An address is a browser's subscription as JSON:
//
//	{"endpoint":"https://push.example/abc","keys":{"p256dh":"…","auth":"…"}}
//
// The browser's service worker gets JSON; the id is the same in every try, and is meant for the notification's tag, so that
// a second one replaces the first:
//
//	{"id":"ntf_…","title":"…","body":"…","event_id":"…","event_type":"…","url":"…","icon":"…","data":…}
//
// url, icon and data are there if the template has them, see the package template. A body that is too long is cut; data that does not
// fit is an error.
//
// The message's id is also its Topic: a push service that holds a first one back replaces it by the second. A subscription that
// is not there any more, 404 or 410, is gone.
package webpush
