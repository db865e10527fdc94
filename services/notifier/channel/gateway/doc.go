// Package gateway sends messages through a service that takes a JSON POST for each message, as most services for SMS and
// messengers do. The body is configured: a JSON document whose texts hold $to, $text, $subject, $url, $id, $user and $locale, or
// are $data.
//
//	POST <the service>
//	Authorization: Bearer <token>
//	Idempotency-Key: ntf_0123456789abcdef0123456789abcdef    the same in every try
//	Content-Type: application/json
//
//	{"to":"+972501234567","text":"Table for 4","id":"ntf_…"}
//
// 2xx means that the service has the message; its id, sid, message_id or messageId is kept. 410 with {"gone":"<the address>"} means
// that the address does not exist any more: it is removed from the directory. After 429, 5xx, no answer, and statuses of a service
// that is not set up (401, 403, 404, 405, 409, and 410 without the address), the message is sent again with the same
// Idempotency-Key. After any other answer it is given up.
package gateway
