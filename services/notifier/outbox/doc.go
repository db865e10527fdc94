// Package outbox publishes events that an application commits together with its own data.
//
// An application that changes its database and then publishes an event loses one of the two when it dies in between. So it
// writes the event into the table event_outbox, in the same transaction, with [Insert] or with plain SQL:
//
//	INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)
//	VALUES ('evt-001', 'RESERVATION_REQUESTED', 'RESTAURANT', '5', '{"guests":4}');
//
// A [Relay] publishes what is committed, and nothing else. [Schema] makes the table; [Migrate] applies it.
//
// # What is promised
//
//   - No committed event is lost, whichever process dies. A row is marked only after the stream has acknowledged its event.
//     Then it is kept for longer than the server may take to sync its files (Config.SyncInterval), read back from the
//     stream, and only then deleted. What is no longer there, because the server's machine lost its power, is published again.
//     A relay looks at once when it has connected again, and a row that went before is looked for before the next of its
//     lane is published.
//   - Each event has one id for all tries, and an event that is published twice is published under the same Nats-Msg-Id.
//     The stream drops the second within its window for duplicates; later ones are for the reader of the stream to drop,
//     as the notifier does, which remembers ids for ever.
//   - Events with the same ordering key reach the stream in the order in which their transactions committed: an insert waits
//     until the transactions that have inserted one with the same key have ended. That holds for the first copy of each
//     event, through crashes of relays and servers, and for any number of relays. It does not hold for an event that was
//     set aside, nor for one whose message the stream lost while it kept later ones of the lane: they are published after
//     those. Between keys there is no order.
//   - A row that cannot be published (it is not a valid event, is too large, or the stream remembers another event under its
//     id) is set aside with the reason, and so is one
//     that the server refused MaxAttempts times; those behind it go on. [Requeue] takes it back.
//
// # Keys
//
// The ordering key is the aggregate, "<aggregate_type>/<aggregate_id>", unless the row says otherwise; there is none where
// there is no aggregate_id, or where ordering_key is ”. A key belongs to one of 64 lanes. A relay publishes from the lanes
// whose rows it can lock (FOR UPDATE SKIP LOCKED), so that one relay at a time has a lane, and the locks of a killed one end
// with its connection; a frozen one loses them after half a minute.
//
// A transaction that inserts events with several keys takes a lock for each, in that order. Two that take the same in
// different orders can block each other, which Postgres ends by failing one; [Insert] sorts what it is given by key. A
// transaction with thousands of keys needs max_locks_per_transaction to match.
//
// # Waking
//
// A trigger notifies relays of each transaction with events (LISTEN/NOTIFY), so that they need not look. Where that does not
// reach them, as through a pooler that shares sessions between transactions, they look every Config.Poll. Postgres lets
// transactions that notify commit one at a time: an application with thousands of commits a second may drop the trigger
// event_outbox_wake and have relays look more often.
//
// # Metrics
//
// With Config.Meters a relay shows what it did (outbox.published, .duplicates, .refused, .set_aside, .lost, .deleted), when
// something went wrong last (outbox.last_error.time), and what waits in the table: outbox.backlog, outbox.backlog.age, which
// is how late the events are, and outbox.backlog.set_aside. What waits is asked of the table each time that metrics are
// collected, and is the same of each relay. [ReadBacklog] asks it once.
//
// # Privileges
//
// An application needs INSERT on event_outbox and USAGE on event_outbox_id_seq. A relay needs SELECT, UPDATE and DELETE on
// event_outbox, SELECT and UPDATE on event_outbox_lane. In NATS it publishes the events, reads the stream's settings, and
// reads messages from it.
package outbox
