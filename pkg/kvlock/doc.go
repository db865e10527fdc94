// Package kvlock is locks, results that are computed once, and coalescing of those who ask for them, across goroutines,
// processes and machines, on a NATS JetStream KV bucket.
//
//	flight, err := kvlock.NewFlight(ctx, js, kvlock.Config{Bucket: "menus"})
//	result, err := flight.Do(ctx, "today", cook, kvlock.DoOptions{TTL: 24 * time.Hour})
//
//	locker, err := kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: "locks"})
//	err = locker.Do(ctx, "oven", func(ctx context.Context, token kvlock.Token) error { ... })
//
// # Results: one key, one state machine
//
// A [Flight] keeps the claim ("somebody computes this key") and the result in one KV entry. There is no window between
// them in which a second caller could slip through:
//
//	absent ─Begin─► pending ─Complete─► done ─TTL, Invalidate, Purge─► absent
//	                  │ ▲ Renew, Resume     │
//	                  │ │                   └─refresh─► pending, with the value that readers get meanwhile
//	                  ├─Fail─► absent at once, or failed for a while; after a refresh: done as before
//	                  ├─Release─► absent
//	                  └─TTL expires, owner is gone─► a waiter takes over
//
// Every arrow is one write that the server accepts only while the entry is at the revision that the writer saw. Nothing
// is decided from a read.
//
// [Flight.Do] runs the machine for a function, [Flight.DoMany] for many keys at once, and [Cache] for a function of
// typed inputs whose key is computed from them. [Flight.Begin], [Flight.Resume], [Claim.Renew], [Claim.Complete],
// [Claim.Fail] and [Claim.Release] are its arrows, for work that starts in one process and ends in another.
// [Flight.GetMany], [Flight.Wait] and [Flight.Watch] look on.
//
// # Locks
//
// A [Locker] hands out leases. Who waits is in a queue in the lock's own record, and whoever releases a lock writes the
// next of the queue into it as the holder: one write, one waiter woken. The holder's context ends when the lease does,
// and before anybody else can have it. What it writes elsewhere carries a fencing token: [Guard] refuses a smaller one
// than it has seen, and says how a database or an HTTP service does.
//
// # What is guaranteed
//
//   - Of all that try to claim a key or to take a lock, one succeeds, until its claim or lease ends or expires.
//   - A result is accepted only from who holds the claim at that moment. A process that was paused past its TTL, or whose
//     claim was resumed or taken over elsewhere, gets ErrLost and changes nothing.
//   - A holder's context ends before somebody else can hold the same lock: at a deadline on its own monotonic clock,
//     counted from when the last acknowledged renewal was sent, even if the server cannot be reached. ([Locker.Steal] is
//     the exception that it says it is.)
//   - Locks are given in the order in which their waiters queued, across processes.
//   - A token is greater than those of all earlier holders of the same key or lock, also when it was deleted or expired
//     in between, when its bucket was made anew, and when that was restored from a backup and [MarkRestored] called.
//     Tokens of different keys are not ordered: nothing here promises more than an order for each key, so that a bucket
//     may one day be spread over several streams.
//   - A write that was applied although the server refused it, or whose acknowledgement was lost, is found out by
//     reading the entry back and comparing its unique owner, and confirmed by another conditional write.
//   - A value is in the record, or in an Object Store whose objects expire a little after their records. A missing or
//     changed object makes the key absent, and is never a wrong value.
//   - Waiters are woken by a push. A lost push delays them by at most two seconds, by four when nobody answers for the
//     stream; an owner whose process has gone by about 50 ms when both are on one server, by 5 s otherwise; one that is
//     frozen by its TTL and the 0.35 s by which the server may be late.
//   - Every operation ends within Config.OpTimeout, every wait with its context.
//
// # What is not guaranteed
//
//   - A function may run twice: its process was cut off or paused until the claim expired, or did not answer a probe, and
//     another took over. Only one of the results is accepted. What the function does elsewhere has to be idempotent, or
//     refuse the smaller of two fencing tokens ([Claim.Token]).
//   - A process that is frozen between looking at its context and acting acts too late. Only the far side can refuse
//     that, by the token.
//   - Reads may be old. [Flight.Get] and [Flight.GetMany] are answered by any replica, or from memory when
//     [Config].Memory is set, which is at most three seconds behind what the leader has applied: an answer of it counts
//     from when it last heard from a majority of the stream's servers.
//   - What the servers do not keep is lost: by default they sync to disk every two minutes, so that a power failure of
//     all of them undoes claims, leases and results. Three replicas and sync_interval "always" close that.
//   - An owner of a claim that has lost its connection for longer than that counts as gone, though it works on.
//   - TTLs are whole seconds and are counted by the server's clock. Leases are counted by monotonic clocks, which are
//     taken to run at the same rate but for the margin of a quarter of the TTL, at most a second; a machine that is
//     suspended stops its own. A server's clock that is set forward by more than twice a lock's TTL (a minute at least),
//     or while a holder is cut off, can end a lease early. The token is the backstop.
//   - A lock that was handed over to who had waited for less than a quarter of a second is in hand with the push that says
//     so, and confirmed meanwhile. When nobody answers, the lease ends with ErrLost half a second to three quarters after
//     it began, where who waited for longer would go on waiting.
//   - Pushes are believed: who may publish to "rp.<bucket>.>" can show waiters a result that is not there, or a lock that
//     is not theirs for three quarters of a second. Permit it to nobody.
//   - A bucket that is deleted and made anew under a running process loses its claims. Tokens go on to grow from the
//     first write on which the process learns of it.
package kvlock
