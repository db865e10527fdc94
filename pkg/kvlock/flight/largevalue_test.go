package flight_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// attic is the Object Store bucket of the tests.
const attic = "attic"

var (
	largeValues = flight.Config{LargeValueBucket: attic}

	// patient and patientLarge are for megabytes in real time, which take seconds on a busy machine with the race detector.
	patient      = flight.Config{OpTimeout: time.Minute}
	patientLarge = flight.Config{LargeValueBucket: attic, OpTimeout: time.Minute}
)

func withLargeValueBucket(t testing.TB, b *testbed.Bed) *testbed.Bed {
	t.Helper()
	check.OK(t, flight.CreateLargeValueBucket(t.Context(), b.JS, kvlock.BucketConfig{Bucket: attic}))
	return b
}

func largeValueStream(t testing.TB, b *testbed.Bed) jetstream.Stream {
	t.Helper()
	return check.Must(b.JS.Stream(t.Context(), "OBJ_"+attic))(t)
}

// largeValueMessages counts the messages in the Object Store.
func largeValueMessages(t testing.TB, b *testbed.Bed) uint64 {
	t.Helper()
	info := check.Must(largeValueStream(t, b).Info(t.Context()))(t)
	return info.State.Msgs
}

// objectOf is the reference that the record of key has, or nil.
func objectOf(t testing.TB, b *testbed.Bed, key string) map[string]any {
	t.Helper()
	meta, _ := recordOf(t, b, key)
	value, _ := meta["value"].(map[string]any)
	object, _ := value["object"].(map[string]any)
	return object
}

// Values around the sizes at which something changes: of a chunk, of a message, of many.
func TestLargeValuesOfEverySize(t *testing.T) {
	t.Parallel()
	b := withLargeValueBucket(t, testbed.New(t))
	const chunk = 512 << 10
	sizes := rapid.OneOf(
		rapid.IntRange(2, 100), rapid.IntRange(chunk-1, chunk+1), rapid.IntRange(2*chunk-1, 2*chunk+1),
		rapid.IntRange(900<<10, 1100<<10), rapid.IntRange(2, 3<<20),
	)
	wantEverySize(t, sizes, []*flight.Flight{b.Flight(t, patientLarge)}, []*flight.Flight{b.Flight(t, patient)}) // which has no LargeValueBucket
}

// A value goes into the record as long as the message has room for it, to the byte.
func TestValueAtTheLimitOfAMessage(t *testing.T) {
	t.Parallel()
	b := withLargeValueBucket(t, testbed.New(t))
	plain := flight.Config{OpTimeout: time.Minute}
	none := b.Flight(t, plain)
	plain.LargeValueBucket = attic
	f := b.Flight(t, plain)
	completeBytes(t, testbed.Begin(t, f, "a", flight.BeginOptions{}), nil)
	room := int(b.JS.Conn().MaxPayload()) - 4<<10 - len(b.Present(t, "a").Data) // the first line is as long for all keys

	completeBytes(t, testbed.Begin(t, f, "b", flight.BeginOptions{}), noise(room))
	check.That(t, objectOf(t, b, "b") == nil && len(b.Present(t, "b").Data) == int(b.JS.Conn().MaxPayload())-4<<10,
		"%d bytes: record of %d, object %v", room, len(b.Present(t, "b").Data), objectOf(t, b, "b"))
	completeBytes(t, testbed.Begin(t, f, "c", flight.BeginOptions{}), noise(room+1))
	check.That(t, objectOf(t, b, "c") != nil, "%d bytes are in the record", room+1)
	for _, key := range []string{"b", "c"} {
		readEveryWay(t, none, key, noise(room+int(key[0]-'b')))
	}

	c := testbed.Begin(t, none, "d", flight.BeginOptions{})
	_, err := c.Complete(t.Context(), noise(room+200), 0) // the instances' names may differ by some bytes
	check.ErrorIs(t, err, kvlock.ErrTooLarge)
	check.ErrorContains(t, err, "set Config.LargeValueBucket")
	completeBytes(t, c, noise(room-200)) // the claim is still held
}

// The client and the tools read the objects as they read others.
func TestClientReadsTheObject(t *testing.T) {
	if testing.Short() {
		t.Skip("20 MB: not with -short")
	}
	t.Parallel()
	b := withLargeValueBucket(t, testbed.New(t))
	f := b.Flight(t, patientLarge)
	store := check.Must(b.JS.ObjectStore(t.Context(), attic))(t)
	for key, value := range map[string][]byte{"noise": noise(2<<20 + 5), "text": document(20 << 20)} {
		completeBytes(t, testbed.Begin(t, f, key, flight.BeginOptions{}), value)
		name, _ := objectOf(t, b, key)["name"].(string)
		object := check.Must(store.Get(t.Context(), name))(t)
		got := check.Must(io.ReadAll(object))(t) // the digest is compared, too
		info, err := object.Info()
		check.That(t, err == nil && info.Description == "value of "+key && info.Size == uint64(len(got)), "got %+v, %v", info, err)
		if info.Headers.Get("Content-Encoding") == "zstd" {
			d := check.Must(zstd.NewReader(bytes.NewReader(got)))(t)
			got = check.Must(io.ReadAll(d))(t)
			d.Close()
		}
		check.That(t, bytes.Equal(got, value), "%s: %d bytes instead of %d", key, len(got), len(value))
		readEveryWay(t, b.Flight(t, patient), key, value)
	}
	list, err := store.List(t.Context())
	check.That(t, err == nil && len(list) == 2, "listed %d, %v", len(list), err)
}

// After any damage to the object, the key is absent and computed again, and no caller gets a wrong or a shorter value.
func TestObjectIsNotWhatWasWritten(t *testing.T) {
	value := noise(2<<20 + 5)
	for name, meddle := range map[string]func(ctx context.Context, b *testbed.Bed, s jetstream.Stream, chunks string) error{
		"removed": func(ctx context.Context, b *testbed.Bed, _ jetstream.Stream, chunks string) error {
			store, err := b.JS.ObjectStore(ctx, attic)
			if err != nil {
				return err
			}
			return store.Delete(ctx, chunks[strings.LastIndexByte(chunks, '.')+1:])
		},
		"the first chunk is lost": func(ctx context.Context, _ *testbed.Bed, s jetstream.Stream, chunks string) error {
			first, err := s.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(chunks))
			if err != nil {
				return err
			}
			return s.DeleteMsg(ctx, first.Sequence)
		},
		"the last chunk is lost": func(ctx context.Context, _ *testbed.Bed, s jetstream.Stream, chunks string) error {
			last, err := s.GetLastMsgForSubject(ctx, chunks)
			if err != nil {
				return err
			}
			return s.DeleteMsg(ctx, last.Sequence)
		},
		"a chunk is there twice": func(ctx context.Context, b *testbed.Bed, s jetstream.Stream, chunks string) error {
			last, err := s.GetLastMsgForSubject(ctx, chunks)
			if err != nil {
				return err
			}
			_, err = b.JS.Publish(ctx, chunks, last.Data)
			return err
		},
		"a chunk is another": func(ctx context.Context, b *testbed.Bed, s jetstream.Stream, chunks string) error {
			last, err := s.GetLastMsgForSubject(ctx, chunks)
			if err != nil {
				return err
			}
			last.Data[0] ^= 1
			return errors.Join(s.DeleteMsg(ctx, last.Sequence), func() error { return check.Err(b.JS.Publish(ctx, chunks, last.Data)) }())
		},
		"the bucket is removed": func(ctx context.Context, b *testbed.Bed, _ jetstream.Stream, _ string) error {
			return b.JS.DeleteObjectStore(ctx, attic)
		},
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			log := &testbed.Logged{}
			withLargeValueBucket(t, b)
			f := b.Flight(t, flight.Config{LargeValueBucket: attic, Logger: log.Logger()})
			completeBytes(t, testbed.Begin(t, f, "k", flight.BeginOptions{}), value)
			check.OK(t, meddle(t.Context(), b, largeValueStream(t, b), fmt.Sprintf("$O.%s.C.%s", attic, objectOf(t, b, "k")["name"])))
			for range 3 {
				s := testbed.Get(t, f, "k")
				check.That(t, s.State == flight.Absent && s.Value == nil, "got %s with %d bytes", s.State, len(s.Value))
			}
			n := log.Count("corrupt record is removed")
			check.That(t, n == 1, "reported %d times:\n%s", n, log.String())
			if name == "the bucket is removed" {
				withLargeValueBucket(t, b)
			}
			r, err := f.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return value, nil }, flight.DoOptions{})
			check.That(t, err == nil && r.Outcome == flight.Computed, "got %s, %v", r.Outcome, err)
			readEveryWay(t, f, "k", value)
		})
	}
}

// A reference that leads elsewhere, or asks for more than its value has, is corrupt.
func TestReferenceIsChecked(t *testing.T) {
	t.Parallel()
	b, log := withLargeValueBucket(t, testbed.New(t)), &testbed.Logged{}
	f := b.Flight(t, flight.Config{LargeValueBucket: attic, Logger: log.Logger()})
	const good = `{"bucket":"attic","name":"c-1-n","size":10,"digest":"SHA-256=x"}`
	bad := []string{good} // which is not there
	for _, change := range [][2]string{
		{"c-1-n", ">"},
		{"c-1-n", "c-1-*"},
		{"c-1-n", "a.b"},
		{"c-1-n", "c-1"},
		{"c-1-n", ""},
		{"c-1-n", "c--n"},
		{"c-1-n", "c-1-n-m"},
		{"c-1-n", "c-1-n d"},
		{"attic", "a.b"},
		{`"attic"`, `""`},
		{"10", "0"},
		{"10", "-1"},
		{"10", "11"},
		{"10", "9"},
	} {
		bad = append(bad, strings.Replace(good, change[0], change[1], 1))
	}
	for i, object := range bad {
		key := fmt.Sprintf("k%d", i)
		put(t, b, key, `"value":{"size":10,"object":`+object+`}`, nil)
		wantEntry(t, f, key, flight.Absent, "")
		wantEntry(t, f, key, flight.Absent, "")
	}
	const size = 2 << 20
	completeBytes(t, testbed.Begin(t, b.Flight(t, patientLarge), "real", flight.BeginOptions{}), noise(size))
	object := check.Must(json.Marshal(objectOf(t, b, "real")))(t)
	for as, want := range map[int]flight.State{size - 1: flight.Absent, size: flight.Done, size + 1: flight.Absent} {
		key := fmt.Sprintf("real%d", as)
		put(t, b, key, fmt.Sprintf(`"value":{"size":%d,"object":%s}`, as, object), nil)
		check.Equal(t, testbed.Get(t, f, key).State, want, fmt.Sprintf("%d bytes as %d", size, as))
	}
	n := log.Count("corrupt record is removed")
	check.That(t, n == len(bad)+2, "%d of %d are reported:\n%s", n, len(bad)+2, log.String())
}

func TestLargeValueBucketIsChecked(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	_, err := flight.New(t.Context(), b.JS, flight.Config{Bucket: testbed.Bucket, LargeValueBucket: attic})
	check.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	check.OK(t, check.Err(b.JS.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: attic, TTL: time.Hour})))
	_, err = flight.New(t.Context(), b.JS, flight.Config{Bucket: testbed.Bucket, LargeValueBucket: attic})
	check.ErrorContains(t, err, "AllowMsgTTL is off", "MaxAge is 1h")
	sc := flight.LargeValueConfig(kvlock.BucketConfig{Bucket: "other"})
	sc.MaxMsgsPerSubject, sc.AllowDirect, sc.Discard, sc.MaxBytes = 1, false, jetstream.DiscardOld, 1<<20
	check.OK(t, check.Err(b.JS.CreateStream(t.Context(), sc)))
	_, err = flight.New(t.Context(), b.JS, flight.Config{Bucket: testbed.Bucket, LargeValueBucket: "other"})
	check.ErrorContains(t, err, "MaxMsgsPerSubject", "AllowDirect", "Discard")
}

// A bucket that is full keeps a value from being stored, and not from being returned.
func TestLargeValueBucketIsFull(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	check.OK(t, flight.CreateLargeValueBucket(t.Context(), b.JS, kvlock.BucketConfig{Bucket: attic, MaxBytes: 1 << 20}))
	f := b.Flight(t, patientLarge)
	fn := func(context.Context) ([]byte, error) { return noise(2 << 20), nil }
	check.ErrorIs(t, check.Err(f.Do(t.Context(), "k", fn, flight.DoOptions{})), kvlock.ErrUnavailable)
	r, err := f.Do(t.Context(), "l", fn, flight.DoOptions{FailOpen: true})
	check.That(t, err == nil && len(r.Value) == 2<<20 && !r.Stored, "got %d bytes, stored %v, %v", len(r.Value), r.Stored, err)
}
