package journal

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/compress"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample is a record with every kind of entry.
func sample() record {
	return record{
		Version: version, Writer: "w", Origin: "1-2", Deliveries: 3, Job: "id", Steps: []entry{
			{Name: `quo"ted \ and <b> שלום`, At: 1, data: []byte{}},
			{Name: "plain", At: 1, Size: 4, data: []byte("soup")},
			{Name: "empty", At: 2, data: []byte{}},
			{Name: "packed", At: 3, Size: 2, Codec: compress.Zstd, Length: 5000, data: []byte{0, '\n'}},
			{Name: "large", At: 4, Codec: compress.Zstd, Length: 9000, Object: &object{ID: "x", Parts: 2, Size: 700}, data: []byte{}},
		},
	}
}

func encoded(t testing.TB, rec record, steps []entry) []byte {
	t.Helper()
	data, _ := encode(rec.head(), 0, steps)
	return data
}

func TestRecordIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	data := encoded(t, record{Version: version, Writer: "w", Origin: "1-2", Deliveries: 3, Job: "id"}, sample().Steps)
	got := check.Must(decode(data))(t)
	check.Equal(t, got, sample())
}

func TestUnreadableRecordsAreRefused(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"empty":             "",
		"no line":           `{"v":1,"writer":"w"}`,
		"no JSON":           "soup\n",
		"newer":             `{"v":2,"writer":["of another type"]}` + "\n",
		"no version":        `{"writer":"w"}` + "\n",
		"no writer":         `{"v":1}` + "\n",
		"too short":         `{"v":1,"writer":"w","steps":[{"name":"a","size":5}]}` + "\nsoup",
		"too long":          `{"v":1,"writer":"w","steps":[{"name":"a","size":3}]}` + "\nsoup",
		"negative":          `{"v":1,"writer":"w","steps":[{"name":"a","size":-1}]}` + "\n",
		"unknown codec":     `{"v":1,"writer":"w","steps":[{"name":"a","codec":"lzw"}]}` + "\n",
		"bomb":              `{"v":1,"writer":"w","steps":[{"name":"a","codec":"zstd","length":99999999999}]}` + "\n",
		"length of nothing": `{"v":1,"writer":"w","steps":[{"name":"a","length":1}]}` + "\n",
		"object's wildcard": `{"v":1,"writer":"w","steps":[{"name":"a","object":{"id":"*","parts":1,"size":1}}]}` + "\n",
		"endless object":    `{"v":1,"writer":"w","steps":[{"name":"a","object":{"id":"x","parts":1000000,"size":1}}]}` + "\n",
		"object and bytes":  `{"v":1,"writer":"w","steps":[{"name":"a","size":4,"object":{"id":"x","parts":1,"size":1}}]}` + "\nsoup",
	} {
		rec, err := decode([]byte(data))
		check.That(t, err != nil, "%s: read as %+v", name, rec)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, record{Version: version, Writer: "w"}, sample().Steps))
	f.Add([]byte(`{"v":1,"writer":"w","steps":[{"name":"a","size":4}]}` + "\nsoup"))
	f.Add([]byte(`{"v":1,"writer":"w"}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := decode(data)
		if err != nil {
			return
		}
		head := rec
		head.Steps = nil
		again := encoded(t, head, slices.Clone(rec.Steps))
		second, err := decode(again)
		check.Require(t, err == nil, "%q was read, and is not when written as %q: %v", data, again, err)
		check.Equal(t, cmp.Diff(rec, second, cmp.AllowUnexported(entry{}), cmpopts.EquateEmpty()), "")
	})
}

// attempts returns a function that opens the journal of the next attempt at a job, and the bucket with it.
func attempts(t *testing.T) (next func() *Journal, bucket jetstream.KeyValue) {
	t.Helper()
	const name = "steps"
	nc, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: name}))
	s := New(Config{API: jsapi.New(js, time.Minute), Bucket: name, Conn: nc, Settle: time.Minute, TTL: time.Hour})
	a := Attempt{Consumer: "c", Job: "j", Sequence: 1, Stored: time.Unix(0, 1), Stream: "S"}
	return func() *Journal { a.Deliveries++; return s.Open(t.Context(), a) }, check.Must(js.KeyValue(t.Context(), name))(t)
}

func TestUnreadableJournalIsNamed(t *testing.T) {
	t.Parallel()
	next, bucket := attempts(t)
	next()
	check.OK(t, check.Err(bucket.Put(t.Context(), "steps.S.c.1-1", []byte("soup\n"))))
	_, err := next().Do(t.Context(), "a", nil)
	if unreadable, ok := errors.AsType[*RecordError](err); !ok || unreadable.Step != "" || !strings.Contains(err.Error(), "remove its key") {
		t.Errorf("%v, want a RecordError that says what to do", err)
	}
}

func TestResultWithoutItsPartsIsRecordedAgain(t *testing.T) {
	t.Parallel()
	large := make([]byte, maxRecord+1)
	_, _ = rand.Read(large) // so that it is not compressed
	next, bucket := attempts(t)
	attempt := func(want ...string) {
		t.Helper()
		var ran []string
		j := next()
		for name, result := range map[string][]byte{"1": []byte("soup"), "2": large, "3": []byte("stew")} {
			got, err := j.Do(t.Context(), name, func(context.Context) ([]byte, error) {
				ran = append(ran, name)
				return result, nil
			})
			check.That(t, err == nil && bytes.Equal(got, result), "step %s: %d bytes, %v", name, len(got), err)
		}
		slices.Sort(ran)
		check.That(t, slices.Equal(ran, want), "steps %v ran, want %v", ran, want)
	}
	attempt("1", "2", "3")
	for _, key := range check.Must(bucket.Keys(t.Context()))(t) {
		if key != "steps.S.c.1-1" {
			check.OK(t, bucket.Delete(t.Context(), key))
		}
	}
	attempt("2")
	attempt()
}

func TestKeysAreTokens(t *testing.T) {
	t.Parallel()
	key := Key(7, time.Unix(1, 5))
	check.That(t, key == "7-1000000005" && ValidKey(key), "key %q", key)
	for _, key := range []string{"", "*", ">", "7", "7-", "-1", "7-1.x", "7-1 ", "7--1", strings.Repeat("1", 21) + "-1"} {
		check.That(t, !ValidKey(key), "%q is taken for a key", key)
	}
}
