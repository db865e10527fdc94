// Package kvlock provides locks with fencing tokens, across goroutines, processes and machines, on a NATS JetStream KV
// bucket. Package flight computes results once, on the same kind of bucket.
//
//	locker, err := kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: "locks"})
//	err = locker.Do(ctx, "oven", func(ctx context.Context, token kvlock.Token) error { ... })
//
// A [Locker] acquires leases. Waiters queue in the lock's own record, and a holder that releases a lock writes the
// first of the queue into the record as the next holder: one write, one waiter woken. The holder's context ends when
// the lease does, and before another holder can have the lock. The holder's writes elsewhere carry a fencing
// token: [Guard] refuses a smaller one than it has seen, and its documentation has the same rule for a database and an
// HTTP service.
//
// A [Semaphore] gives permits to several holders at once, and a [RateLimiter] spaces calls out, over all processes. There
// are no read-write locks, latches and multi-locks: see README.md for the reasons, and for the alternatives.
//
// # Guarantees
//
//   - Of all callers that try to take a lock, one succeeds, until its lease ends or expires.
//   - A holder's context ends before another member can hold the same lock: at a deadline on its own monotonic clock,
//     counted from when the last acknowledged renewal was sent, even if the server cannot be reached. ([Locker.Steal]
//     is the exception, and says so.)
//   - Locks are given in the order in which their waiters queued, across processes.
//   - A token is greater than those of all earlier holders of the same key or lock. That holds too if the key was deleted or expired in
//     between, if the bucket was recreated, and if it was restored from a backup and [MarkRestored] called. Tokens of different keys are
//     not ordered.
//   - A write that was applied although the server refused it, or whose acknowledgement was lost, is detected by
//     reading the entry back and comparing its unique owner, and confirmed by another conditional write.
//   - Waiters are woken by a push. A lost push delays them by at most two seconds, by four when no server answers for
//     the stream; a holder that died or is paused, by up to its TTL. Waiters whose processes were killed delay those behind them by one
//     second, once, whatever their number; by a tenth of a second each where probes do not detect the end of the processes.
//   - Every operation ends within OpTimeout, every wait with its context.
//
// # Not guaranteed
//
//   - A process that is paused between checking its context and acting acts too late. Only the system that it writes to
//     can refuse that write, by the token.
//   - A write is as durable as the servers make it: by default they sync to disk every two minutes, so that a power
//     failure of all of them undoes leases. Three replicas and sync_interval "always" close that.
//   - TTLs are whole seconds and are counted by the server's clock. Leases are counted by monotonic clocks, which are
//     taken to run at the same rate but for the margin of a quarter of the TTL, at most a second; a suspended machine stops its clock. A
//     server's clock that is set forward by more than twice a lock's TTL (a minute at least), or while a holder is cut off, can end a
//     lease early. The token is the backstop.
//   - A waiter of less than a quarter of a second has the lock with the push that hands it over, and confirms it in the
//     background. When no server answers, its lease ends with ErrLost half a second to three quarters after it began; a waiter of longer
//     would go on waiting.
//   - A lock whose holder was killed is not free before its TTL has passed, though the holder's connection was closed: a holder without a
//     connection may still live and act.
//   - A waiter that has no connection when another takes the lock of a dead holder loses its place, and queues again when it is connected.
//   - Pushes are trusted: a user that may publish to "rp.<bucket>.>" can make waiters believe for three quarters of a
//     second that they hold a lock. Permit no user to do so.
//   - A bucket that is deleted and recreated under a running process loses its leases: their holders learn of it when
//     another holder takes the lock, or with their next renewal. Until then there are two holders. Make buckets with [CreateBucket], or
//     give their streams a FirstSeq as [FirstSequence] does: where the revisions of two buckets with one name may coincide, a former
//     holder can evict the present one until it learns of the new bucket, and in the second before it asks again a token can be smaller
//     than one of the former bucket.
package kvlock
