// Package wolttest is a local server that implements the part of Wolt's consumer API that package wolt uses, for tests and
// demonstrations.
//
// It answers POST /v1/pages/search and GET /v1/cities in the documented shape, from a list of venues, and it requires the
// documented headers: without `platform: Web` an answer is a no-content page, without a client version it is a 410. Each
// [Fault] is a failure that clients of the real API have met. A test sets the faults of the next calls, or one for all calls
// until [Server.Recover]. The server counts the calls.
//
// The package does not import testing, so that a demonstration can use it.
package wolttest
