// Package flight computes each result once and coalesces all callers that ask for it, across goroutines, processes and
// machines, on a NATS JetStream KV bucket. Package kvlock makes the bucket, and has the errors that results and locks
// have in common.
//
//	menus, err := flight.New(ctx, js, flight.Config{Bucket: "menus"})
//	result, err := menus.Do(ctx, "today", cook, flight.DoOptions{TTL: 24 * time.Hour})
//
// A [Flight] keeps the claim ("this key is being computed") and the result in one KV entry. No second caller can slip in between the two:
//
//	absent ─Begin─► pending ─Complete─► done ─TTL, Invalidate─► absent
//	                  │ ▲ Renew, Resume
//	                  │ │
//	                  ├─Fail─► absent at once, or failed for a while
//	                  ├─Release─► absent
//	                  └─TTL expires, owner is gone─► a waiter takes over
//
// Every arrow is one write that the server accepts only while the entry is at the revision that the writer saw. Nothing
// is decided from a read.
//
// [Flight.Do] takes a key through these states for a function, and [Cache] for a
// function of typed inputs whose key is computed from them. [Flight.Begin], [Flight.Resume], [Claim.Renew],
// [Claim.Complete], [Claim.Fail] and [Claim.Release] are the single transitions, for work that starts in one process
// and ends in another. [Flight.Get], [Flight.GetMany], [Flight.Wait] and [Flight.Watch] only read.
//
// # Guarantees, beside those of package kvlock
//
//   - Of all callers that try to claim a key, one succeeds, until its claim ends or expires.
//   - A result is accepted only from the holder of the claim at that moment. A process that was paused past its TTL, or
//     whose claim was resumed or taken over elsewhere, gets ErrLost and changes nothing.
//   - A value is in the record, or in an Object Store whose objects expire a little after their records. A missing or
//     changed object makes the key absent, and is never a wrong value.
//   - An owner whose process is gone delays waiters by about 50 ms when both are on one server, by less than a second when they are on
//     two, and by 5 s when the owner's server cannot be reached. A paused owner delays them by its TTL and the 0.35 s by which the server
//     may be late.
//
// # Not guaranteed
//
//   - A function may run twice: another process takes over when the first was cut off or paused until the claim expired, or did not answer
//     a probe. Only one of the results is accepted. The function's effects elsewhere have to be idempotent, or refuse the smaller of two
//     fencing tokens ([Claim.Token]).
//   - Reads may be old. Any replica answers [Flight.Get] and [Flight.GetMany]. A replica that was cut off answers with its last known
//     state until it has caught up: keys that were done looked absent more than six seconds after a partition had healed. Only a write
//     decides, as in [Flight.Begin]. With [Config].Memory they are answered from memory, which is at most three seconds behind the leader.
//     An answer of the leader counts from the time at which the leader last heard from a majority of the stream's servers.
//   - An owner that has lost its connection counts as gone, though it works on: at once for waiters on its server, and half a second later
//     for others, if it is not connected again by then.
//   - Pushes are trusted: a user that may publish to "rp.<bucket>.>" can show waiters a result that is not there.
//     Permit no user to do so.
//   - Claims and results are as durable as the servers make them, and a bucket that is recreated loses its claims.
package flight
