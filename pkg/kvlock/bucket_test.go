package kvlock

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestEverySettingThatIsNotSafeIsNamed(t *testing.T) {
	t.Parallel()
	breaks := map[string]func(*jetstream.StreamConfig){
		"AllowMsgTTL":   func(sc *jetstream.StreamConfig) { sc.AllowMsgTTL = false },
		"limit markers": func(sc *jetstream.StreamConfig) { sc.SubjectDeleteMarkerTTL = time.Second },
		"history is 5":  func(sc *jetstream.StreamConfig) { sc.MaxMsgsPerSubject = 5 },
		"PerSubject":    func(sc *jetstream.StreamConfig) { sc.DiscardNewPerSubject = true },
		"AllowDirect":   func(sc *jetstream.StreamConfig) { sc.AllowDirect = false },
		"PersistMode":   func(sc *jetstream.StreamConfig) { sc.PersistMode = jetstream.AsyncPersistMode },
		"MaxAge":        func(sc *jetstream.StreamConfig) { sc.MaxAge = time.Hour },
		"Discard": func(sc *jetstream.StreamConfig) {
			sc.Discard = jetstream.DiscardOld
			sc.MaxBytes = 1 << 20
		},
		"Retention": func(sc *jetstream.StreamConfig) { sc.Retention = jetstream.WorkQueuePolicy },
		"mirror":    func(sc *jetstream.StreamConfig) { sc.Mirror = &jetstream.StreamSource{Name: "x"} },
		"NoAck":     func(sc *jetstream.StreamConfig) { sc.NoAck = true },
	}
	all := StreamConfig(BucketConfig{Bucket: "b"})
	for want, set := range breaks {
		sc := StreamConfig(BucketConfig{Bucket: "b"})
		set(&sc)
		set(&all)
		err := kv.CheckStream("b", sc)
		check.That(t, err != nil && strings.Contains(err.Error(), want) && strings.Count(err.Error(), "\n") == 0, "%s: got %v", want, err)
	}
	err := kv.CheckStream("b", all)
	for want := range breaks {
		check.That(t, err != nil && strings.Contains(err.Error(), want), "all at once: %s is not named in %v", want, err)
	}
}

func TestTokensAreOrdered(t *testing.T) {
	t.Parallel()
	ordered := []Token{{}, {Revision: 1}, {Revision: 2}, {Epoch: 1}, {Epoch: 1, Revision: 9}, {Epoch: 2, Revision: 1}}
	for i, a := range ordered {
		for j, b := range ordered {
			got := a.Compare(b)
			check.That(t, got == cmp.Compare(i, j), "%s.Compare(%s) = %d, want %d", a, b, got, cmp.Compare(i, j))
		}
	}
	check.That(t, slices.IsSortedFunc(ordered, Token.Compare) && ordered[4].String() == "1-9", "sorted wrong, or written wrong: %v", ordered)
}

func FuzzToken(f *testing.F) {
	f.Add("1-2")
	f.Add("18446744073709551615-0")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		if err != nil {
			return
		}
		back, err := ParseToken(token.String())
		check.That(t, err == nil && back == token, "%q is %s, which is %s, %v", s, token, back, err)
	})
}
