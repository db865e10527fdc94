package kvlock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/backoff"
)

const (
	// chunkBytes is how much of an object is in one message. With base64 around it, as the leader answers, it still fits
	// into one message of the default size.
	chunkBytes = 512 << 10

	// headroom is what a message may have beside its data: our headers, and those which the server adds when it pushes
	// the message or answers with it. A leaf node closes the connection on which more comes than it takes.
	headroom = 4 << 10

	// An upload has a bound because the TTLs of its first chunks run meanwhile.
	uploadBase   = 30 * time.Second
	uploadPerSec = 256 << 10 // bytes, at least
)

// object is where the data of a value is in an Object Store.
type object struct {
	Bucket string `json:"bucket"`
	Digest string `json:"digest"` // as in the object's description there: "SHA-256=" and base64
	Name   string `json:"name"`   // also of its chunks; no other object ever has it
	Size   int    `json:"size"`
}

// check refuses what was not written by store. A name goes into a subject.
func (o object) check() error {
	name := strings.Split(o.Name, "-") // claim, attempt, and what makes it new
	switch {
	case !bucketName.MatchString(o.Bucket):
		return fmt.Errorf("object in bucket %.64q", o.Bucket)
	case len(name) != 3 || !isClaim(name[0]) || !isClaim(name[1]) || !isClaim(name[2]):
		return fmt.Errorf("object with name %.128q", o.Name)
	case o.Size < 1 || o.Size > maxValue:
		return fmt.Errorf("object of %d bytes, the limit is %d", o.Size, maxValue)
	}
	return nil
}

func (o object) chunks() string { return objectPrefix(o.Bucket) + "C." + o.Name }

func digest(data []byte) string {
	h := sha256.New()
	h.Write(data)
	return jetstream.GetObjectDigestValue(h)
}

// uploadTime bounds how long an object of size bytes is written.
func uploadTime(size int) time.Duration {
	return uploadBase + time.Duration(size)*time.Second/uploadPerSec
}

// store makes of value what the record of the claim stores, which edit writes for ttl. What does not fit into it is
// written to the Object Store first, so that no record ever refers to what is not there; meanwhile the claim is renewed.
func (c *Claim) store(ctx context.Context, value []byte, ttl time.Duration, edit func(*record)) (packed, []byte, error) {
	s := c.flight.store
	p, data, err := s.pack(c.key, value)
	if err != nil {
		return p, nil, err
	}
	c.mu.Lock()
	r, ended := c.record, c.ended
	c.mu.Unlock()
	if ended != nil {
		return p, nil, nil // who writes the record finds out
	}
	claimTTL := time.Duration(cmp.Or(r.Kept.Holds, r.TTL)) * time.Second
	r.Handoff, r.Kept, r.Value = false, kept{}, p
	edit(&r)
	c.flight.alive.sign(&r)
	room, err := s.room(r)
	if err != nil || len(data) <= room {
		return p, data, err
	}
	if s.values.overflow == "" {
		return p, nil, fmt.Errorf("%w: key %q: %d bytes, %d as they are stored, and %d fit into one message: "+
			"set Config.Overflow to an Object Store bucket, or raise the server's max_payload",
			ErrTooLarge, c.key, len(value), len(data), room)
	}
	held, stop := c.Keep(ctx, claimTTL)
	defer stop()
	name := fmt.Sprintf("%s-%d-%s", c.id, r.Attempt, nuid.Next())
	p.Object = &object{Bucket: s.values.overflow, Digest: digest(data), Name: name, Size: len(data)}
	p.Size = len(value)
	return p, nil, s.upload(held, c.key, p, data, ttl)
}

// room is how many bytes of a value fit into the record.
func (s *store) room(r record) (int, error) {
	meta, err := r.encode(nil)
	if err != nil {
		return 0, err
	}
	room := s.messageRoom() - len(meta)
	if above := s.values.overflowAbove; above > 0 {
		room = min(room, above)
	}
	return room, nil
}

// messageRoom is how much data fits into one message.
func (s *store) messageRoom() int {
	size := s.nc.MaxPayload()
	if s.maxMessage > 0 {
		size = min(size, s.maxMessage)
	}
	return int(size - min(headroom, size/4))
}

// upload writes data as an object that goes by itself when the record has gone that will be written after it: its TTL is
// the record's, and the longest that both writes take. One round trip for each 512 KB, and one for the description.
func (s *store) upload(ctx context.Context, key string, p packed, data []byte, ttl time.Duration) error {
	bound := uploadTime(len(data))
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	ttl += (bound + 2*s.opTimeout).Truncate(time.Second) + time.Second
	o := *p.Object
	size := min(chunkBytes, s.messageRoom())
	chunks := 0
	for chunk := range slices.Chunk(data, size) {
		m := s.part(o.chunks(), o.Name+"-"+strconv.Itoa(chunks), chunk, ttl)
		if err := s.sendPart(ctx, key, o.Bucket, m); err != nil {
			return err
		}
		chunks++
	}

	//nolint:gosec // counts and sizes are at most maxValue
	info := jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{
			Name: o.Name, Description: "value of " + key, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(size)},
		},
		Bucket: o.Bucket, NUID: o.Name, Size: uint64(o.Size), Chunks: uint32(chunks), Digest: o.Digest,
	}
	if p.Codec != "" {
		info.Headers = nats.Header{"Content-Encoding": []string{p.Codec}}
	}
	description, err := json.Marshal(info)
	if err != nil {
		return fmt.Errorf("kvlock: describe the object of %q: %w", key, err)
	}
	subject := objectPrefix(o.Bucket) + "M." + base64.URLEncoding.EncodeToString([]byte(o.Name))
	return s.sendPart(ctx, key, o.Bucket, s.part(subject, o.Name, description, ttl))
}

// part is a message of an object. Its id keeps it from being stored twice when its acknowledgement was lost.
func (s *store) part(subject, id string, data []byte, ttl time.Duration) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = data
	m.Header.Set(jetstream.MsgIDHeader, id)
	m.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(seconds(ttl), 10)+"s")
	return m
}

// sendPart sends m until it is acknowledged, for the time of one operation.
func (s *store) sendPart(ctx context.Context, key, bucket string, m *nats.Msg) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for wait := minSettleWait; ; wait = min(2*wait, maxSettleWait) {
		_, err := s.send(ctx, objectStream(bucket), m, tryTimeout)
		switch {
		case err == nil:
			return nil
		case isPermanent(err):
			return s.final("write the object of", key, err)
		case !backoff.Pause(ctx, wait):
			return s.unavailable(ctx, "write the object of", []string{key}, err)
		}
	}
}

// fetch reads the data of an object. One that is missing or torn is broken, if the leader of its stream says so too: a
// replica may lag behind. One round trip for each 4 MB, and many when a replica lagged behind.
func (s *store) fetch(ctx context.Context, key string, o object) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, uploadTime(o.Size))
	defer cancel()
	stop := context.AfterFunc(s.ended, cancel)
	defer stop()
	stream := objectStream(o.Bucket)
	data, err := s.get.All(ctx, stream, o.chunks(), o.Size)
	if err == nil && o.matches(data) {
		return data, nil
	}
	leader, stopAsking := s.bound(ctx)
	defer stopAsking()
	data, err = s.get.AllLeader(leader, stream, o.chunks(), o.Size)
	switch {
	case err != nil:
		return nil, s.unavailable(ctx, "read the object of", []string{key}, err)
	case !o.matches(data):
		return nil, fmt.Errorf("%w: object %s in bucket %s has not the %d bytes that were written", errBroken, o.Name, o.Bucket, o.Size)
	}
	return data, nil
}

func (o object) matches(data []byte) bool { return len(data) == o.Size && digest(data) == o.Digest }
