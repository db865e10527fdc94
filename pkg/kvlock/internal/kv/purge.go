package kv

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/directget"
)

// purgeKey is the key that Purge writes. All hubs receive its mark; the purge of a stream itself is not pushed.
const purgeKey = reservedPrefix + "_purge"

// markVersion is the version of a purgeMark. A reader that does not know the version treats the mark as a purge of all keys.
const markVersion = 1

// purgeMark is the value of purgeKey.
type purgeMark struct {
	Version int    `json:"v"`
	Prefix  string `json:"prefix"`           // "" for all keys
	Before  uint64 `json:"before,omitempty"` // the revision below which keys are purged; 0 for that of the mark itself
}

// keys returns the text with which all purged keys begin.
func (m purgeMark) keys() string {
	if m.Prefix == "" {
		return ""
	}
	return m.Prefix + "."
}

// Purge removes all keys that begin with prefix and a dot, and all keys for the prefix "", as they were before the call.
// It returns the number of entries that the server removed. It writes a mark, removes the keys before the mark in the order of changes,
// and writes a second mark. A replica that has the second mark answers without the keys. Three round trips.
func (s *Store) Purge(ctx context.Context, prefix string) (n int, err error) {
	if err := CheckPrefix(prefix); err != nil {
		return 0, err
	}
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	mark := purgeMark{Version: markVersion, Prefix: prefix}
	if mark.Before, err = s.markPurge(ctx, mark); err != nil {
		return 0, err
	}
	err = s.Persist(ctx, "purge", prefix, func() error {
		n, err = s.purgeStream(ctx, s.prefix+mark.keys()+">", mark.Before)
		return err
	})
	if err == nil {
		_, err = s.markPurge(ctx, mark)
	}
	return n, err
}

// markPurge writes the mark. A second mark does no harm, since both are equal.
func (s *Store) markPurge(ctx context.Context, mark purgeMark) (revision uint64, err error) {
	data, err := json.Marshal(mark)
	if err != nil {
		return 0, fmt.Errorf("kvlock: encode mark of a purge: %w", err)
	}
	err = s.Persist(ctx, "purge", mark.Prefix, func() error {
		m := s.message(purgeKey, 0, data, MarkerTTL(0), false)
		m.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
		revision, err = s.publish(ctx, m, SendTimeout)
		return err
	})
	if err == nil {
		s.Hub.purged(mark, revision)
	}
	return revision, err
}

// purgeStream removes the messages of subject below revision before.
func (s *Store) purgeStream(ctx context.Context, subject string, before uint64) (n int, err error) {
	var answer struct {
		Purged int `json:"purged"`
	}
	err = s.api.Ask(ctx, "STREAM.PURGE."+s.Stream, jetstream.StreamPurgeRequest{Subject: subject, Sequence: before}, &answer)
	return answer.Purged, err
}

// onPurgeMark applies a pushed mark: older entries under its prefix no longer count.
func (h *Hub) onPurgeMark(m *nats.Msg) {
	message, err := directget.Pushed(m)
	if err != nil {
		h.store.Log.Debug("kvlock: republished message is not used", "subject", m.Subject, "error", err)
		return
	}
	var mark purgeMark
	if err := json.Unmarshal(m.Data, &mark); err != nil || mark.Version > markVersion {
		h.store.Log.Warn("kvlock: mark of a purge is not understood, all keys are read anew", "error", err)
		mark = purgeMark{} // treat it as a mark of all keys
	}
	h.purged(mark, message.Sequence)
}

// purged drops the purged keys from memory, and makes the poller read the watched ones again when they are removed.
func (h *Hub) purged(mark purgeMark, revision uint64) {
	gone := mark.Before > 0
	if !gone {
		mark.Before = revision
	}
	if h.mirror != nil {
		h.mirror.Purged(mark.keys(), mark.Before, revision)
	}
	if gone {
		h.readPrefixSoon(mark.keys(), revision)
	}
}
