// Package enrich attaches delivery links to restaurants: from the slots of a bucket when they are known, and by one job
// for each place when they are not.
//
// A slot is one KV entry for each place and provider, kept by a flight.Flight. A request reads all its slots in one round
// trip. It claims those that are absent, queues a job for each claim, and is answered: PENDING for what is not known.
// A worker resumes the claim, asks the provider, and turns the claim into the result. Whoever asked is told by a
// [Subscription], in whatever process the question was asked and the work was done.
package enrich
