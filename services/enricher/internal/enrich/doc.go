// Package enrich attaches delivery links to restaurants: from the slots of a bucket when they are known, and by one job
// for each place when they are not.
//
// A slot is the KV entry of one place at one provider, kept by a flight.Flight. A request reads all its slots in one round
// trip. It claims the absent ones, queues a job for each claim, and is answered: places without a result are PENDING. A
// worker resumes the claim, asks the provider, and turns the claim into the result. A [Subscription] delivers the results to
// the client, whichever processes took the request and did the work.
package enrich
