// Package provider defines what the enricher needs of a source of delivery links.
//
// A provider gets a place and returns the venues that may be that place, as many
// as it likes and in any order; it does not decide. Deciding is the matcher's
// work, on every provider's venues alike. A new provider implements [Provider]
// and is handed to the enricher; nothing else changes.
//
// # Unknown is not absent
//
// ONLY an empty list together with a nil error says "the provider answered, and
// knows no such place". That one answer may be kept for a day, so it has to be
// earned: an outage, a ban, a bot wall that answers 200 with nothing in it, a
// broken body, a part of the pages missing, are all an [*Error] and never an
// empty list. A provider that is not sure returns an error.
//
// # Errors
//
// Every error of a provider is an [*Error]. Its Kind sorts it, Temporary says whether
// the job is worth repeating, and RetryAfter when at the earliest. Use [KindOf] and
// [Temporary] where an error of another type may come along.
package provider
