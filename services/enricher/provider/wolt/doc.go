// Package wolt finds delivery links with the search of Wolt's consumer site.
//
// # Before it is used
//
// The API is not documented and not offered to others, and Wolt's terms forbid
// "systematic retrieval" by automated means. So there is no default address: the
// operator sets [Config].BaseURL to one that may be asked this way, such as an
// agreed gateway, or a stand-in like the one in package wolttest, and answers for
// it. Limiting the rate, honouring Retry-After and keeping answers for days are part
// of the provider, not of its tuning.
//
// # A search
//
// A search costs one to MaxCalls calls of POST {base}/v1/pages/search, each with a
// text, a position and a language, and once a day one GET {base}/v1/cities:
//
//  1. the name, in the language of its script;
//  2. the name without its branch and without words such as "restaurant";
//  3. the name in the other languages, which answer with names in theirs;
//  4. the other names of the place.
//
// It ends as soon as the matcher is confident. A venue that several answers hold is
// given once, with its names as aliases. Its link is
// https://wolt.com/{language}/{country}/{city}/restaurant/{slug}, where the city is
// the nearest in the list of cities.
//
// # What is an answer
//
// Wolt sends many bodies with status 200 that are no answer: nothing at all, a no-content page for clients that it does not
// trust, a page of HTML. The empty answer is therefore defined narrowly: sections are there, none is a no-content page, and
// there is a list of venues, which is empty or holds no restaurant. All calls of the plan have to be answered like that.
// When some venues cannot be read, the others can still be found, but "none" cannot be concluded. Everything else is a
// [provider.Error]:
//
//	429                                      rate_limited, with the Retry-After or 30 s
//	403, 410, 430, redirect, empty, no-content   blocked
//	5xx, refused, connection lost            unavailable
//	no answer in time                        timeout
//	HTML, broken or oversized body, no lists malformed
//	other 4xx                                misconfigured (permanent)
//	no name, no known position               unsupported (permanent)
//
// # Restraint
//
// A [Client] makes no call before its Turn, none while a Retry-After lasts, and none
// for 30 seconds after five failed calls in a row. A search that meets
// one of the latter fails at once with the time after which it is worth repeating.
// Rate and the number of searches that can end in time at that rate are [Client.Limits]
// of all processes together: their enricher keeps to them. One that began with too
// little of the rate would use up calls and come to nothing.
package wolt
