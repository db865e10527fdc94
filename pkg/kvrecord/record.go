package kvrecord

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

// Headers of a record.
const (
	// HeaderWriter is unique to the call of [Stream.Put] that wrote the record.
	HeaderWriter = "Expediter-Writer"

	// HeaderReplaced names the record that was replaced: its revision, a dot, and its writer.
	HeaderReplaced = "Expediter-Replaced"
)

// Record is the last message of a subject.
type Record struct {
	// Subject is where the record is.
	Subject string

	// Revision is the sequence of the record in its stream, 0 when there is none.
	Revision uint64

	// Data is the content. It is empty when there is no record, and when a bucket's key was deleted.
	Data []byte

	// Header holds the headers that the record was written with, including those of this package. It is nil in a record that
	// Put returned.
	Header nats.Header

	// Stored is when the server stored the record, by its clock. It is zero in a record that Put returned.
	Stored time.Time

	// Sent is when this process sent the acknowledged write, by its clock. It is zero in a record that was read.
	Sent time.Time

	// AsOf is a sequence of the stream at which this was the last record of its subject, and 0 when the answer did not hold
	// one.
	AsOf uint64

	writer   string
	replaced string
	made     int64 // when its stream was created, as known when the record was read or written
}

// identity names the record in the history of its subject.
func (r Record) identity() string { return strconv.FormatUint(r.Revision, 10) + "." + r.writer }

// replacedBy returns the revision of the record that r replaced, if that record was written by writer.
func (r Record) replacedBy(writer string) (revision uint64, ok bool) {
	number, by, found := strings.Cut(r.replaced, ".")
	if !found || by != writer {
		return 0, false
	}
	revision, err := strconv.ParseUint(number, 10, 64)
	return revision, err == nil
}

// record returns the record of a message that the server returned.
func (s *Stream) record(m jsapi.Message) Record {
	return Record{
		Subject: m.Subject, Revision: m.Sequence, Data: m.Data, Header: m.Header, Stored: m.Time, AsOf: m.AsOf,
		writer: m.Header.Get(HeaderWriter), replaced: m.Header.Get(HeaderReplaced), made: s.made.Load(),
	}
}

// absent returns the Record that stands for none.
func (s *Stream) absent(subject string) Record { return Record{Subject: subject, made: s.made.Load()} }

// Deleted reports whether the record marks a key of a bucket that was deleted, purged or has expired.
func (r Record) Deleted() bool {
	return r.Header.Get("KV-Operation") != "" || r.Header.Get(jetstream.MarkerReasonHeader) != ""
}
