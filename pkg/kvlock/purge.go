package kvlock

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/backoff"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
)

// reservedPrefix begins the keys that are not for callers (ADR-8).
const reservedPrefix = "_kv"

// purgeKey is the key that is written when keys are purged, for all to learn of it: the purge of a stream is not pushed.
const purgeKey = reservedPrefix + "_purge"

// purgeMark is the value of purgeKey.
type purgeMark struct {
	Version int    `json:"v"`
	Prefix  string `json:"prefix"`           // "" for all keys
	Before  uint64 `json:"before,omitempty"` // the revision that purged keys are below; 0 for that of the mark itself
}

// keys is what all keys begin with that are purged.
func (m purgeMark) keys() string {
	if m.Prefix == "" {
		return ""
	}
	return m.Prefix + "."
}

// Purge makes all keys absent that begin with prefix and a dot, and all keys with the prefix "", and returns how many
// entries the server removed, the markers of failed and invalidated keys among them. Computations under way lose their
// claims: what they computed from the old state of the world is not kept, and those who wait compute again. Locks in the
// same bucket are keys too.
//
// What was written before the call is removed, everywhere; what is written after it is left alone, even by a call that
// takes longer or is repeated. Other processes learn of it by a mark under the key "_kv_purge": they drop what they have
// in memory, and their waiters look again. When Purge returns an error some of this may not have happened: it is called
// again.
//
// A server that keeps the bucket alone, and is killed before it has written its index, which it does at least every two
// and a half minutes, may find again what had been overwritten under these keys before the purge. Purge is called again
// after that; [Flight.Invalidate] has no such gap.
//
// Three round trips, however many keys there are. The server needs about 2 µs for each entry that it removes, and does
// nothing else for the bucket in that time. The process needs the permission to publish to
// "$JS.API.STREAM.PURGE.KV_<bucket>".
func (f *Flight) Purge(ctx context.Context, prefix string) (n int, err error) {
	if err := checkPrefix(prefix); err != nil {
		return 0, err
	}
	return f.purge(ctx, prefix)
}

// purge marks the point in the order of changes up to which keys go, removes them, and tells that they have gone. What a
// replica answers that knows of the second mark is without them.
func (s *store) purge(ctx context.Context, prefix string) (n int, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	mark := purgeMark{Version: recordVersion, Prefix: prefix}
	if mark.Before, err = s.mark(ctx, mark); err != nil {
		return 0, err
	}
	err = s.persist(ctx, "purge", prefix, func() error {
		n, err = s.purgeStream(ctx, s.prefix+mark.keys()+">", mark.Before)
		return err
	})
	if err == nil {
		_, err = s.mark(ctx, mark)
	}
	return n, err
}

// mark writes the mark, however often: each says the same.
func (s *store) mark(ctx context.Context, mark purgeMark) (revision uint64, err error) {
	data, err := json.Marshal(mark)
	if err != nil {
		return 0, fmt.Errorf("kvlock: encode mark of a purge: %w", err)
	}
	err = s.persist(ctx, "purge", mark.Prefix, func() error {
		m := s.message(purgeKey, 0, data, markerTTL(0), false)
		m.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
		revision, err = s.publish(ctx, m, tryTimeout)
		return err
	})
	if err == nil {
		s.purged(mark, revision)
	}
	return revision, err
}

// purgeStream removes what is stored under subject below revision before.
func (s *store) purgeStream(ctx context.Context, subject string, before uint64) (n int, err error) {
	body, err := json.Marshal(jetstream.StreamPurgeRequest{Subject: subject, Sequence: before})
	if err != nil {
		return 0, fmt.Errorf("encode request: %w", err)
	}
	if !s.nc.IsConnected() {
		return 0, fmt.Errorf("not sent: %w", nats.ErrDisconnected)
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	reply, err := s.nc.RequestWithContext(ctx, s.api+"STREAM.PURGE."+s.stream, body)
	if err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	var answer struct {
		Error  *jetstream.APIError `json:"error"`
		Purged int                 `json:"purged"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, fmt.Errorf("answer to the purge is not JSON: %w", err)
	}
	if answer.Error != nil {
		return 0, answer.Error
	}
	return answer.Purged, nil
}

// persist tries until it succeeds, cannot, or ctx ends.
func (s *store) persist(ctx context.Context, op, key string, try func() error) error {
	for wait := minSettleWait; ; wait = min(2*wait, maxSettleWait) {
		switch err := try(); {
		case err == nil, isForeign(err):
			return err
		case isPermanent(err):
			return s.final(op, key, err)
		case !backoff.Pause(ctx, wait):
			return s.unavailable(ctx, op, []string{key}, err)
		}
	}
}

// purgePushed takes a pushed mark: nothing under its prefix is believed that is older.
func (b *board) purgePushed(m *nats.Msg) {
	message, err := directget.Pushed(m)
	if err != nil {
		b.store.log.Debug("kvlock: republished message is not used", "subject", m.Subject, "error", err)
		return
	}
	var mark purgeMark
	if err := json.Unmarshal(m.Data, &mark); err != nil || mark.Version > recordVersion {
		b.store.log.Warn("kvlock: mark of a purge is not understood, all keys are read anew", "error", err)
		mark = purgeMark{} // whatever it is about, let it be about all
	}
	b.store.purged(mark, message.Sequence)
}

// purged drops what is in memory of the keys that the mark at revision is about, and has their watchers look once they
// have gone.
func (s *store) purged(mark purgeMark, revision uint64) {
	gone := mark.Before > 0
	if !gone {
		mark.Before = revision
	}
	s.memory.purged(mark, revision)
	if gone {
		s.board.readPrefixSoon(mark.keys(), revision)
	}
}

// readPrefixSoon is readSince of the keys that begin with prefix.
func (b *board) readPrefixSoon(prefix string, asOf uint64) {
	b.mu.Lock()
	keys := make([]string, 0, len(b.keys))
	for key := range b.keys {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	b.mu.Unlock()
	for _, key := range keys {
		b.readSince(key, asOf)
	}
}
