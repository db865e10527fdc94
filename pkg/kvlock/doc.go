// Package kvlock computes each key once at a time and keeps the results, across goroutines, processes and machines, on
// a NATS JetStream KV bucket.
//
// # One key, one state machine
//
// A [Flight] keeps the claim ("somebody computes this key") and the result in one KV entry. There is no window between
// them in which a second caller could slip through:
//
//	absent ─Begin─► pending ─Complete─► done ─TTL, Invalidate─► absent
//	                  │ ▲ Renew, Resume
//	                  ├─Fail─► absent at once, or failed for a while
//	                  ├─Release─► absent
//	                  └─TTL expires─► absent: a waiter takes over
//
// Every arrow is one write that the server accepts only while the entry is at the revision that the writer saw.
// Nothing is decided from a read.
//
// [Flight.Do] runs the machine for a function. [Flight.Begin], [Flight.Resume], [Claim.Renew], [Claim.Complete],
// [Claim.Fail] and [Claim.Release] are its arrows, for work that starts in one process and ends in another.
// [Flight.GetMany], [Flight.Wait] and [Flight.Watch] look on.
//
// # What is guaranteed
//
//   - Of all that try to claim a key, one succeeds, until its claim ends or expires.
//   - A result is accepted only from who holds the claim at that moment. A process that was paused past its TTL, or
//     whose claim was resumed elsewhere, gets [ErrLost] and changes nothing.
//   - A write that was applied although the server refused it, or whose acknowledgement was lost, is found out by
//     reading the entry back and comparing its unique owner, and confirmed by another conditional write.
//   - Waiters are woken by a push. A lost push delays them by at most two seconds; a dead owner by its TTL and the 0.35 s
//     by which the server may be late.
//   - Every operation ends within Config.OpTimeout, every wait with its context.
//
// # What is not guaranteed
//
//   - A function may run twice: its process was cut off or paused until the claim expired, and another took over. Only
//     one of the results is accepted. What the function does elsewhere has to be idempotent, or refuse the smaller of
//     two fencing tokens ([Claim.Token]).
//   - Reads may be old. [Flight.Get] and [Flight.GetMany] are answered by any replica.
//   - What the servers do not keep is lost: by default they sync to disk every two minutes, so that a power failure of
//     all of them undoes claims and results. Three replicas and sync_interval "always" close that.
//   - TTLs are whole seconds and are counted by the server's clock.
//   - Pushes are believed: who may publish to "rp.<bucket>.>" can show waiters a result that is not there. Permit it to
//     nobody.
//   - A bucket that is deleted and made anew under a running process loses its claims. Tokens go on to grow from the
//     first write on which the process learns of it.
package kvlock
