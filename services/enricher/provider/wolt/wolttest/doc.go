// Package wolttest is a server on this machine that speaks the part of Wolt's
// consumer API that package wolt uses, for tests and demonstrations.
//
// It answers POST /v1/pages/search and GET /v1/cities in the documented shape, from
// a list of venues, and it insists on the documented headers: without `platform:
// Web` an answer is a no-content page, without a client version it is a 410. Each
// [Fault] is one bad day that clients of the real API have met; a test gives the
// server the faults for its next calls, or one for all calls until [Server.Recover].
// It counts what it was asked.
//
// The package does not import testing, so that a demonstration can use it.
package wolttest
