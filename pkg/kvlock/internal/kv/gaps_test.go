package kv

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A server that answers for a stream is believed for as long ago as it was the leader for sure.
func TestLeads(t *testing.T) {
	t.Parallel()
	peer := func(name string, active time.Duration) *jetstream.PeerInfo {
		return &jetstream.PeerInfo{Name: name, Active: active}
	}
	tests := []struct {
		name    string
		leader  string
		others  []*jetstream.PeerInfo
		want    time.Duration
		refused bool
	}{
		{"the only one", "a", nil, 0, false},
		{"with a majority", "a", []*jetstream.PeerInfo{peer("b", 2), peer("c", time.Hour)}, 2, false},
		{"with the second of four", "a", []*jetstream.PeerInfo{peer("b", 9), peer("c", 3), peer("d", 5), peer("e", 7)}, 5, false},
		{"with the other of two", "a", []*jetstream.PeerInfo{peer("b", 9)}, 9, false},
		{"cut off for long", "a", []*jetstream.PeerInfo{peer("b", time.Minute), peer("c", time.Hour)}, time.Minute, false},
		{"that never heard of anybody", "a", []*jetstream.PeerInfo{peer("b", 0), peer("c", 0)}, 0, true},
		{"that heard of too few", "a", []*jetstream.PeerInfo{peer("b", 1), peer("c", 0), peer("d", 0), peer("e", 0)}, 0, true},
		{"another", "b", []*jetstream.PeerInfo{peer("b", 1), peer("c", 1)}, 0, true},
		{"nobody", "", []*jetstream.PeerInfo{peer("a", 1), peer("b", 1), peer("c", 1)}, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := leads(&jetstream.ClusterInfo{Leader: tt.leader, Replicas: tt.others})
			if got != tt.want || (err != nil) != tt.refused {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
	if got, err := leads(nil); got != 0 || err != nil {
		t.Errorf("of a server that is not in a cluster: %s, %v", got, err)
	}
}

// A key that passes is a key by the client's own rule (ADR-8), and one subject.
func FuzzKey(f *testing.F) {
	rule := regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)
	longest := strings.Repeat("k", MaxKeyBytes)
	for _, seed := range []string{
		"a", "wolt.abc", "aZ09-/_=.x", "_x", longest, "", longest + "k", ".", ".a", "a.", "a..b", "*", ">", "a.*", "a.>", "a b",
		"a\nPUB x", "\x00", "a\x00", "ä", "קפה", "a:b", `a\b`, "\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		bad := !rule.MatchString(key) || strings.HasPrefix(key, ".") || strings.HasSuffix(key, ".") ||
			strings.Contains(key, "..") || len(key) > MaxKeyBytes
		if err := CheckKey(key); (err != nil) != bad || bad && !errors.Is(err, ErrInvalidKey) {
			t.Errorf("CheckKey(%q) = %v, want an error: %v", key, err, bad)
		}
	})
}
