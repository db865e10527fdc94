-- The outbox: events that were committed with the data that they are about. Applying this again changes nothing.
DO $$ BEGIN
    IF getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'the outbox needs a database with the encoding UTF8: % has %', current_database(), getdatabaseencoding();
    END IF;
END $$;

-- An application inserts into the first group of columns, and into no other.
CREATE TABLE IF NOT EXISTS event_outbox (
    id             bigint GENERATED ALWAYS AS IDENTITY,
    event_id       text NOT NULL UNIQUE,
    event_type     text NOT NULL,             -- such as RESERVATION_REQUESTED
    aggregate_type text NOT NULL,             -- such as RESTAURANT
    aggregate_id   text NOT NULL DEFAULT '',
    user_id        text NOT NULL DEFAULT '',
    occurred_at    timestamptz,
    not_before     timestamptz,               -- readers act no earlier; the event is published at once
    payload        json,
    extra          json,                      -- an object: the other members of the event, such as {"recipientType": "BROADCAST"}
    headers        json,                      -- an object of strings, such as {"traceparent": "..."}
    ordering_key   text NOT NULL,             -- NULL means the aggregate, '' means that the order does not matter

    -- What follows is the relay's.
    created_at     timestamptz NOT NULL DEFAULT now() CHECK (isfinite(created_at)),
    lane           smallint NOT NULL CHECK (lane BETWEEN 0 AND 63),
    bytes          integer NOT NULL CHECK (bytes >= 0),
    state          text NOT NULL CHECK (state IN ('pending', 'set_aside')), -- a published row is deleted
    attempts       integer NOT NULL CHECK (attempts BETWEEN 0 AND 99),
    reason         text,                      -- why it was refused, or set aside
    retry_at       timestamptz CHECK (isfinite(retry_at)), -- not before

    -- Nothing is looked for by its id alone. An index on it would be taken for one, to read a lane in its order, where few
    -- rows are in the lane.
    PRIMARY KEY (lane, id)
);

CREATE INDEX IF NOT EXISTS event_outbox_pending ON event_outbox (lane, id) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS event_outbox_retry ON event_outbox (lane, retry_at) WHERE state = 'pending' AND retry_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS event_outbox_set_aside ON event_outbox (lane, id) WHERE state = 'set_aside';

-- Rows come and go: what they leave must not wait for a fifth of the table.
ALTER TABLE event_outbox SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.2);

-- A relay that publishes from a lane has its row locked.
CREATE TABLE IF NOT EXISTS event_outbox_lane (lane smallint PRIMARY KEY);
INSERT INTO event_outbox_lane SELECT generate_series(0, 63) ON CONFLICT DO NOTHING;

-- Rows with the same key get ascending ids in the order in which their transactions commit: the lock is held until then, and
-- the id is drawn after it is had. The one that the column's default has drawn may be too early.
CREATE OR REPLACE FUNCTION event_outbox_arrange() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.ordering_key IS NULL THEN
        NEW.ordering_key := CASE WHEN NEW.aggregate_id = '' THEN '' ELSE NEW.aggregate_type || '/' || NEW.aggregate_id END;
    END IF;
    IF NEW.ordering_key <> '' THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('event_outbox ' || NEW.ordering_key, 0));
        NEW.id := nextval(pg_get_serial_sequence(format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME), 'id'));
        NEW.lane := hashtextextended(NEW.ordering_key, 0) & 63;
    ELSE
        NEW.lane := NEW.id & 63;
    END IF;
    NEW.bytes := coalesce(octet_length(NEW.payload::text), 0) + coalesce(octet_length(NEW.extra::text), 0)
        + coalesce(octet_length(NEW.headers::text), 0) + octet_length(NEW.event_id) + octet_length(NEW.event_type)
        + octet_length(NEW.aggregate_type) + octet_length(NEW.aggregate_id) + octet_length(NEW.user_id);
    NEW.state := 'pending';
    NEW.attempts := 0;
    NEW.created_at := now();
    NEW.reason := NULL;
    NEW.retry_at := NULL;
    RETURN NEW;
END $$;

-- Relays are told when a transaction with events commits. Postgres sends them one message for each transaction, however many
-- rows it has; nothing is sent where nobody listens.
CREATE OR REPLACE FUNCTION event_outbox_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('event_outbox', '');
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER event_outbox_arrange BEFORE INSERT ON event_outbox
    FOR EACH ROW EXECUTE FUNCTION event_outbox_arrange();
CREATE OR REPLACE TRIGGER event_outbox_wake AFTER INSERT ON event_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION event_outbox_wake();
