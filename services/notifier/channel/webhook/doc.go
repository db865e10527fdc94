// Package webhook sends messages by calling an address of the user, signed by Standard Webhooks 1.0:
//
//	POST <the address>
//	content-type: application/json
//	webhook-id: ntf_0123456789abcdef0123456789abcdef     the same in every try
//	webhook-timestamp: 1614265330                        when this try was made
//	webhook-signature: v1,<base64>                       and more, one for each secret
//
//	{"type":"RESERVATION_REQUESTED","timestamp":"2026-11-20T18:00:00Z",
//	 "data":{"event_id":"evt-001","recipient_type":"CUSTOMER","user_id":"ada","payload":{…}}}
//
// An answer 2xx accepts the message. 410 removes the address. After any other answer, even one that refuses the message, such
// as 400 or 422, the message is sent again, after Retry-After, on the schedule of [Retries]. Redirects are not followed. An
// address in a network that is not public is refused when it is dialled.
//
// Each address of a user has its own secret, see [Webhook.Secrets], so that no user can sign for another. It is derived from the
// secret of the service. While the service has several secrets, for a rotation, all of them sign.
package webhook
