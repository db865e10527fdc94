// Package outbox publishes events that an application commits together with its own data.
//
// An application that changes its database and then publishes an event loses one of the two when it dies in between. So it
// writes the event into the table event_outbox, in the same transaction, with [Insert] or with plain SQL:
//
//	INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)
//	VALUES ('evt-001', 'RESERVATION_REQUESTED', 'RESTAURANT', '5', '{"guests":4}');
//
// Members of an event without a column go into the column extra, an object, and keep their bytes. A [Relay] publishes committed events, and
// no others. [Schema] creates the table; [Migrate] applies it.
//
// # Guarantees
//
//   - No committed event is lost, whichever process dies. The relay deletes a row only after the stream has acknowledged its
//     event. From then on the event is as durable as the stream: three replicas, or sync_interval: always, which deploy/nats sets for
//     clusters, survive a disk or a power failure. A single server that syncs less often loses the events since its last sync, and the
//     outbox does not publish them again.
//   - Each event has one id for all attempts, and every attempt has the same Nats-Msg-Id. The stream drops copies within its
//     window for duplicates. Readers of the stream have to drop later copies, as the notifier does.
//   - Events with the same ordering key reach the stream in the order in which their transactions committed: an insert waits
//     until other transactions that have inserted an event with the same key have ended. That holds for the first copy of
//     each event, through crashes of relays and servers, and for any number of relays. It does not hold for an event that was set aside:
//     it is published after later events. There is no order between keys.
//   - A row is set aside with the reason when it can never be published (it is not a valid event, is too large, or the stream
//     holds another event under its id), when the server has refused it ten times, and when it is published and cannot be deleted,
//     because of a foreign key for instance. The rows after it go on. [Requeue] makes it pending again.
//   - A row that another transaction has locked is published when that transaction ends. Later rows with its key wait, others go on.
//
// An event with a not_before is published at once like any other, in the order of its key; its readers wait.
//
// # Keys
//
// The ordering key is the column ordering_key, or where that is NULL the aggregate, "<aggregate_type>/<aggregate_id>", if the row
// has an aggregate_id. A row with an empty key waits for no other row. A key belongs to one of 64 lanes. A relay publishes from the lanes
// whose rows it can lock (FOR UPDATE SKIP LOCKED), so that one relay at a time holds a lane. The locks of a killed relay end with its
// connection; a frozen relay loses them after half a minute.
//
// A transaction that inserts events with several keys takes a lock for each key, in the order of the events. Two transactions that take
// the same locks in different orders can block each other: Postgres then fails one. [Insert] sorts its events by key. A transaction with
// thousands of keys needs a max_locks_per_transaction to match.
//
// # Notifications
//
// A trigger notifies relays of each transaction with events (LISTEN/NOTIFY). Where notifications do not reach a relay, as through a pooler
// that shares sessions between transactions, the relay looks for rows every Config.Poll. Postgres lets transactions that notify commit one
// at a time: an application with thousands of commits a second may drop the trigger event_outbox_wake and have relays look more often.
//
// # Metrics
//
// With Config.Meters a relay has counters (outbox.published, .duplicates, .refused, .set_aside), the time of
// the last error (outbox.last_error.time), and gauges of the table: outbox.backlog, outbox.backlog.age (the delay of the events) and
// outbox.backlog.set_aside. The gauges are read from the table at each collection, and are the same for each relay. [ReadBacklog] reads
// them once.
//
// # Privileges
//
// The database and the connections to it need the encoding UTF8: [Migrate] and [New] refuse others with [ErrEncoding].
//
// An application needs INSERT on event_outbox and USAGE on event_outbox_id_seq. A relay needs SELECT, UPDATE and DELETE on
// event_outbox, SELECT and UPDATE on event_outbox_lane. In NATS it publishes the events, reads the stream's settings
// if it may, and reads messages from it.
package outbox
