package kvlock_test

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
)

// attic is the Object Store bucket of the tests.
const attic = "attic"

var overflowing = kvlock.Config{Overflow: attic} //nolint:gochecknoglobals // read only

func (b *bed) withAttic(t testing.TB) *bed {
	t.Helper()
	if err := kvlock.CreateOverflow(t.Context(), b.js, kvlock.BucketConfig{Bucket: attic}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bed) atticStream(t testing.TB) jetstream.Stream {
	t.Helper()
	s, err := b.js.Stream(t.Context(), "OBJ_"+attic)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// atticMessages counts what is in the Object Store.
func (b *bed) atticMessages(t testing.TB) uint64 {
	t.Helper()
	info, err := b.atticStream(t).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

// object is the reference that the record of key has, or nil.
func (b *bed) object(t testing.TB, key string) map[string]any {
	t.Helper()
	meta, _ := b.stored(t, key)
	value, _ := meta["value"].(map[string]any)
	object, _ := value["object"].(map[string]any)
	return object
}

func (b *bed) chunks(t testing.TB, key string) string {
	t.Helper()
	return fmt.Sprintf("$O.%s.C.%s", attic, b.object(t, key)["name"])
}

// Values around the sizes at which something changes: of a chunk, of a message, of many.
func TestOverflowOfEverySize(t *testing.T) {
	t.Parallel()
	b := setup(t).withAttic(t)
	f, all := b.flight(t, overflowing), b.flight(t, kvlock.Config{Overflow: attic, OverflowAbove: 1, CompressAbove: -1})
	reader := b.flight(t, kvlock.Config{}) // has no Overflow itself
	i := 0
	rapid.Check(t, func(rt *rapid.T) {
		const chunk = 512 << 10
		size := rapid.OneOf(
			rapid.IntRange(2, 100), rapid.IntRange(chunk-1, chunk+1), rapid.IntRange(2*chunk-1, 2*chunk+1),
			rapid.IntRange(900<<10, 1100<<10), rapid.IntRange(2, 3<<20),
		).Draw(rt, "size")
		value := noise(size)
		if rapid.Bool().Draw(rt, "compressible") {
			value = document(size)[:size]
		}
		i++
		key := fmt.Sprintf("k%d", i)
		completeBytes(t, begin(t, rapid.SampledFrom([]*kvlock.Flight{f, all}).Draw(rt, "writer"), key, kvlock.BeginOptions{}), value)
		if s := get(t, reader, key); s.State != kvlock.Done || !bytes.Equal(s.Value, value) {
			rt.Errorf("%d bytes became %d, %s", size, len(s.Value), s.State)
		}
	})
}

func TestEveryWayToReadAnObject(t *testing.T) {
	t.Parallel()
	b := setup(t).withAttic(t)
	for name, value := range map[string][]byte{"noise": noise(3 << 20), "text": document(30 << 20)} {
		completeBytes(t, begin(t, b.flight(t, overflowing), name, kvlock.BeginOptions{}), value)
		if b.object(t, name) == nil {
			t.Errorf("%s is not in the Object Store", name)
		}
		everyWay(t, b.flight(t, kvlock.Config{}), name, value)
	}
}

// A value goes into the record as long as the message has room for it, to the byte.
func TestValueAtTheLimitOfAMessage(t *testing.T) {
	t.Parallel()
	b := setup(t).withAttic(t)
	f, none := b.flight(t, kvlock.Config{Overflow: attic, CompressAbove: -1}), b.flight(t, kvlock.Config{CompressAbove: -1})
	completeBytes(t, begin(t, f, "a", kvlock.BeginOptions{}), nil)
	room := int(b.js.Conn().MaxPayload()) - 4<<10 - len(b.present(t, "a").Data) // the first line is as long for all keys

	completeBytes(t, begin(t, f, "b", kvlock.BeginOptions{}), noise(room))
	if b.object(t, "b") != nil || len(b.present(t, "b").Data) != int(b.js.Conn().MaxPayload())-4<<10 {
		t.Errorf("%d bytes: record of %d, object %v", room, len(b.present(t, "b").Data), b.object(t, "b"))
	}
	completeBytes(t, begin(t, f, "c", kvlock.BeginOptions{}), noise(room+1))
	if b.object(t, "c") == nil {
		t.Errorf("%d bytes are in the record", room+1)
	}
	for _, key := range []string{"b", "c"} {
		everyWay(t, none, key, noise(room+int(key[0]-'b')))
	}

	c := begin(t, none, "d", kvlock.BeginOptions{})
	_, err := c.Complete(t.Context(), noise(room+200), 0) // the instances' names may differ by some bytes
	wantErr(t, err, kvlock.ErrTooLarge)
	if err == nil || !strings.Contains(err.Error(), "set Config.Overflow") {
		t.Errorf("%v does not say what to do", err)
	}
	completeBytes(t, c, noise(room-200)) // the claim is still held
}

// The client and the tools read the objects as they read others.
func TestClientReadsTheObject(t *testing.T) {
	t.Parallel()
	b := setup(t).withAttic(t)
	f := b.flight(t, overflowing)
	store, err := b.js.ObjectStore(t.Context(), attic)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string][]byte{"noise": noise(2<<20 + 5), "text": document(20 << 20)} {
		completeBytes(t, begin(t, f, key, kvlock.BeginOptions{}), value)
		name, _ := b.object(t, key)["name"].(string)
		object, err := store.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(object)
		if err != nil {
			t.Fatal(err) // the digest is compared, too
		}
		info, err := object.Info()
		if err != nil || info.Description != "value of "+key || info.Size != uint64(len(got)) {
			t.Errorf("got %+v, %v", info, err)
		}
		if info.Headers.Get("Content-Encoding") == "zstd" {
			d, err := zstd.NewReader(bytes.NewReader(got))
			if err != nil {
				t.Fatal(err)
			}
			got, err = io.ReadAll(d)
			d.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, value) {
			t.Errorf("%s: %d bytes instead of %d", key, len(got), len(value))
		}
	}
	list, err := store.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Errorf("listed %d, %v", len(list), err)
	}
}

// Whatever happened to the object, the key is absent and computed again, and nobody gets a wrong or a shorter value.
func TestObjectIsNotWhatWasWritten(t *testing.T) {
	value := noise(2<<20 + 5)
	for name, meddle := range map[string]func(ctx context.Context, b *bed, s jetstream.Stream, chunks string) error{
		"removed": func(ctx context.Context, b *bed, _ jetstream.Stream, chunks string) error {
			store, err := b.js.ObjectStore(ctx, attic)
			if err != nil {
				return err
			}
			return store.Delete(ctx, chunks[strings.LastIndexByte(chunks, '.')+1:])
		},
		"the first chunk is lost": func(ctx context.Context, _ *bed, s jetstream.Stream, chunks string) error {
			first, err := s.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(chunks))
			if err != nil {
				return err
			}
			return s.DeleteMsg(ctx, first.Sequence)
		},
		"the last chunk is lost": func(ctx context.Context, _ *bed, s jetstream.Stream, chunks string) error {
			last, err := s.GetLastMsgForSubject(ctx, chunks)
			if err != nil {
				return err
			}
			return s.DeleteMsg(ctx, last.Sequence)
		},
		"a chunk is there twice": func(ctx context.Context, b *bed, s jetstream.Stream, chunks string) error {
			last, err := s.GetLastMsgForSubject(ctx, chunks)
			if err != nil {
				return err
			}
			_, err = b.js.Publish(ctx, chunks, last.Data)
			return err
		},
		"a chunk is another": func(ctx context.Context, b *bed, s jetstream.Stream, chunks string) error {
			last, err := s.GetLastMsgForSubject(ctx, chunks)
			if err != nil {
				return err
			}
			last.Data[0] ^= 1
			return errors.Join(s.DeleteMsg(ctx, last.Sequence), func() error { _, err := b.js.Publish(ctx, chunks, last.Data); return err }())
		},
		"the bucket is removed": func(ctx context.Context, b *bed, _ jetstream.Stream, _ string) error {
			return b.js.DeleteObjectStore(ctx, attic)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bed) {
				log := &logged{}
				b.withAttic(t)
				f := b.flight(t, kvlock.Config{Overflow: attic, Logger: log.logger()})
				completeBytes(t, begin(t, f, "k", kvlock.BeginOptions{}), value)
				if err := meddle(t.Context(), b, b.atticStream(t), b.chunks(t, "k")); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if s := get(t, f, "k"); s.State != kvlock.Absent || s.Value != nil {
						t.Errorf("got %s with %d bytes", s.State, len(s.Value))
					}
				}
				if n := log.count("corrupt record is removed"); n != 1 {
					t.Errorf("reported %d times:\n%s", n, log.text.String())
				}
				if name == "the bucket is removed" {
					b.withAttic(t)
				}
				r, err := f.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return value, nil }, kvlock.DoOptions{})
				if err != nil || r.Outcome != kvlock.Computed {
					t.Errorf("got %s, %v", r.Outcome, err)
				}
				everyWay(t, f, "k", value)
			})
		})
	}
}

// A reference that leads elsewhere, or asks for more than its value has, is corrupt.
func TestReferenceIsChecked(t *testing.T) {
	t.Parallel()
	b, log := setup(t).withAttic(t), &logged{}
	f := b.flight(t, kvlock.Config{Overflow: attic, Logger: log.logger()})
	const good = `{"bucket":"attic","name":"c-1-n","size":10,"digest":"SHA-256=x"}`
	bad := []string{
		strings.Replace(good, "c-1-n", ">", 1), strings.Replace(good, "c-1-n", "c-1-*", 1), strings.Replace(good, "c-1-n", "a.b", 1),
		strings.Replace(good, "c-1-n", "c-1", 1), strings.Replace(good, "c-1-n", "", 1), strings.Replace(good, "attic", "a.b", 1),
		strings.Replace(good, `"attic"`, `""`, 1), strings.Replace(good, "10", "0", 1), strings.Replace(good, "10", "-1", 1),
		strings.Replace(good, "10", "11", 1), strings.Replace(good, "10", "9", 1), good, // which is not there
	}
	for i, object := range bad {
		key := fmt.Sprintf("k%d", i)
		b.put(t, key, `"value":{"size":10,"object":`+object+`}`, nil)
		wantSlot(t, f, key, kvlock.Absent, "")
		wantSlot(t, f, key, kvlock.Absent, "")
	}
	completeBytes(t, begin(t, b.flight(t, kvlock.Config{Overflow: attic, OverflowAbove: 1}), "real", kvlock.BeginOptions{}), noise(10))
	object, err := json.Marshal(b.object(t, "real"))
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]kvlock.State{9: kvlock.Absent, 10: kvlock.Done, 11: kvlock.Absent} {
		key := fmt.Sprintf("real%d", size)
		b.put(t, key, fmt.Sprintf(`"value":{"size":%d,"object":%s}`, size, object), nil)
		if s := get(t, f, key); s.State != want {
			t.Errorf("10 bytes as %d: %s", size, s.State)
		}
	}
	if n := log.count("corrupt record is removed"); n != len(bad)+2 {
		t.Errorf("%d of %d are reported:\n%s", n, len(bad)+2, log.text.String())
	}
}

func TestOverflowBucketIsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := kvlock.NewFlight(t.Context(), b.js, kvlock.Config{Bucket: bucket, Overflow: attic})
	wantErr(t, err, jetstream.ErrStreamNotFound)
	if _, err := b.js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: attic, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	_, err = kvlock.NewFlight(t.Context(), b.js, kvlock.Config{Bucket: bucket, Overflow: attic})
	for _, want := range []string{"AllowMsgTTL is off", "MaxAge is 1h"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
	sc := kvlock.OverflowConfig(kvlock.BucketConfig{Bucket: "other"})
	sc.MaxMsgsPerSubject, sc.AllowDirect, sc.Discard, sc.MaxBytes = 1, false, jetstream.DiscardOld, 1<<20
	if _, err := b.js.CreateStream(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	_, err = kvlock.NewFlight(t.Context(), b.js, kvlock.Config{Bucket: bucket, Overflow: "other"})
	for _, want := range []string{"MaxMsgsPerSubject", "AllowDirect", "Discard"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
	_, err = kvlock.NewFlight(t.Context(), b.js, kvlock.Config{Bucket: bucket, Overflow: "a.b", OverflowAbove: -1})
	for _, want := range []string{"Overflow is", "OverflowAbove is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
}

// A bucket that is full keeps a value from being stored, and not from being returned.
func TestOverflowBucketIsFull(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := kvlock.CreateOverflow(t.Context(), b.js, kvlock.BucketConfig{Bucket: attic, MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	f := b.flight(t, overflowing)
	fn := func(context.Context) ([]byte, error) { return noise(2 << 20), nil }
	_, err := f.Do(t.Context(), "k", fn, kvlock.DoOptions{})
	wantErr(t, err, kvlock.ErrUnavailable)
	r, err := f.Do(t.Context(), "l", fn, kvlock.DoOptions{FailOpen: true})
	if err != nil || len(r.Value) != 2<<20 || r.Stored {
		t.Errorf("got %d bytes, stored %v, %v", len(r.Value), r.Stored, err)
	}
}

// Both stores outlive a restart of the server.
func TestObjectAfterARestart(t *testing.T) {
	t.Parallel()
	b := setup(t).withAttic(t)
	f := b.flight(t, kvlock.Config{Overflow: attic, OpTimeout: 20 * time.Second})
	value := noise(5 << 20)
	completeBytes(t, begin(t, f, "k", kvlock.BeginOptions{}), value)
	c := begin(t, f, "l", kvlock.BeginOptions{})
	if err := b.srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	everyWay(t, f, "k", value)
	completeBytes(t, c, value)
	everyWay(t, f, "l", value)
}
