// Package gateway sends messages through a service that takes a JSON POST for each message, as most services for SMS and
// messengers do. What the body looks like is configured: a JSON document whose texts hold $to, $text, $subject, $id, $user
// and $locale.
//
//	POST <the service>
//	Authorization: Bearer <token>
//	Idempotency-Key: ntf_0123456789abcdef0123456789abcdef    the same in every try
//	Content-Type: application/json
//
//	{"to":"+972501234567","text":"Table for 4","id":"ntf_…"}
package gateway
