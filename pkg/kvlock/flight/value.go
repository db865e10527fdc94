package flight

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/compress"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

const (
	defaultMaxValue = 64 << 20

	// compressAbove is the size in bytes above which values are compressed, when that makes them smaller.
	compressAbove = 4 << 10

	// maxValue bounds Config.MaxValue, and the accepted size in a record.
	maxValue = 1 << 30

	// keptOpen is the largest size of an opened value that is kept with its stored form, for the next caller.
	keptOpen = 1 << 20
)

func (cfg Config) validateValues() error {
	return errors.Join(
		validate.If(cfg.MaxValue < 1 || cfg.MaxValue > maxValue, "kvlock: MaxValue is %d: want 1 to %d bytes", cfg.MaxValue, maxValue),
		validate.If(cfg.LargeValueBucket != "" && !kv.IsBucketName(cfg.LargeValueBucket),
			"kvlock: LargeValueBucket is %s: want 1 to 250 letters, digits, '-' and '_'", redact.Quote(cfg.LargeValueBucket)))
}

// packed is the part of a record that describes the stored form of its value.
type packed struct {
	Codec  string  `json:"codec,omitempty"`
	Object *object `json:"object,omitempty"` // the object with the value, when it is not in the record
	Size   int     `json:"size,omitempty"`   // the size of the value, in bytes, when the record has it in another form or not at all
}

// check returns an error for a description that pack does not write. An unknown codec is that of a newer version.
func (p packed) check() error {
	switch {
	case p.Codec != "" && p.Codec != compress.Zstd:
		return fmt.Errorf("%w: codec %.32q, this program knows %q", kvlock.ErrVersion, p.Codec, compress.Zstd)
	case p.Size < 0 || p.Size > maxValue:
		return fmt.Errorf("value of %d bytes, the limit is %d", p.Size, maxValue)
	case p.Object != nil && (p.Object.Size > p.Size || p.Codec == "" && p.Object.Size != p.Size):
		return fmt.Errorf("value of %d bytes in an object of %d", p.Size, p.Object.Size)
	case p.Object != nil:
		return p.Object.check()
	}
	return nil
}

// content is the stored form of an entry's value, which is opened when a caller wants the value. All copies of the entry share it, so that
// waiters that were woken together open it once. It is opened in the goroutine of a caller, never in the goroutine that receives pushes.
type content struct {
	packed

	stored []byte
	turn   chan struct{} // has an element while the value is being opened

	mu     sync.Mutex
	users  int // the number of callers that open it, or wait for that
	value  []byte
	broken bool
}

// errBroken is the error of a value that its record describes and that can never be read.
var errBroken = errors.New("value cannot be read")

// seal returns the stored form of the value, or nil when data is the value.
func (p packed) seal(data []byte) *content {
	if p.Codec == "" && p.Object == nil {
		return nil
	}
	return &content{packed: p, stored: data, turn: make(chan struct{}, 1)}
}

// unseal fetches the value of an entry, in the caller's goroutine. A broken value is reported, its record is removed, and the key is
// returned as absent.
func (f *Flight) unseal(ctx context.Context, entry Entry) (Entry, error) {
	if !entry.sealed {
		return entry, nil
	}
	c := entry.in().origin
	if c.Size > f.cfg.MaxValue {
		return Entry{}, fmt.Errorf("%w: key %q: %d bytes, Config.MaxValue is %d: raise it", kvlock.ErrTooLarge, entry.Key, c.Size, f.cfg.MaxValue)
	}
	value, first, err := c.open(ctx, f, entry.Key)
	switch {
	case err == nil:
		entry.Value, entry.sealed = value, false
		return entry, nil
	case !errors.Is(err, errBroken):
		return Entry{}, err
	// Many callers may find the value broken at the same time: one removes the record.
	case first:
		ctx, cancel := f.store.Bound(ctx, f.store.OpTimeout)
		defer cancel()
		f.removeCorrupt(ctx, entry, err)
	}
	return Entry{Key: entry.Key, Revision: entry.Revision, Created: entry.Created, seen: entry.seen}, nil
}

// open returns the value. With errBroken, first is true for one caller only, which reports the error.
func (c *content) open(ctx context.Context, f *Flight, key string) (value []byte, first bool, err error) {
	c.enter()
	defer c.leave()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	defer func() { <-c.turn }()
	switch {
	case c.broken:
		return nil, false, errBroken
	case c.value != nil:
		return c.value, false, nil
	}
	value, err = f.unpack(ctx, key, c)
	switch {
	case err == nil:
		c.value = value
	case errors.Is(err, errBroken):
		c.broken = true
	}
	return value, true, err
}

func (c *content) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
}

// leave drops a large value when no caller waits for it any more: entries are kept for as long as their keys are watched.
func (c *content) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	if c.users == 0 && len(c.value) > keptOpen {
		c.value = nil
	}
}

// unpack returns the value, read from the Object Store if it is stored there.
func (f *Flight) unpack(ctx context.Context, key string, c *content) ([]byte, error) {
	data := c.stored
	if c.Object != nil {
		var err error
		if data, err = f.fetch(ctx, key, *c.Object); err != nil {
			return nil, err
		}
	}
	if c.Codec == "" {
		return data, nil
	}
	value, err := f.codec.Decompress(data, c.Size)
	switch {
	case errors.Is(err, compress.ErrCorrupt):
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	case err != nil:
		return nil, fmt.Errorf("kvlock: %w", err)
	}
	return value, nil
}

const (
	// chunkBytes is the size of the part of an object in one message. It still fits into one message of the default size when a leader
	// answers with it in base64.
	chunkBytes = 512 << 10

	// headroom bounds the headers of a message: our headers, and those that the server adds when it pushes the message
	// or answers with it. A leaf node closes a connection that sends a larger message than the node takes.
	headroom = 4 << 10

	// An upload has a bound because the TTLs of its first chunks run in the meantime.
	uploadBase   = 30 * time.Second
	uploadPerSec = 256 << 10 // bytes, at least
)

// object locates the data of a value in an Object Store.
type object struct {
	Bucket string `json:"bucket"`
	Digest string `json:"digest"` // as in the object's description in the store: "SHA-256=" and base64
	Name   string `json:"name"`   // also of its chunks; no other object ever has this name
	Size   int    `json:"size"`
}

// check refuses an object that store did not write: its name becomes a part of a subject.
func (o object) check() error {
	name := strings.Split(o.Name, "-") // claim, attempt, and a unique part
	switch {
	case !kv.IsBucketName(o.Bucket):
		return fmt.Errorf("object in bucket %.64q", o.Bucket)
	case len(name) != 3 || !kv.IsID(name[0]) || !kv.IsID(name[1]) || !kv.IsID(name[2]):
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

// uploadTime returns the bound of the time of an upload of size bytes.
func uploadTime(size int) time.Duration {
	return uploadBase + time.Duration(size)*time.Second/uploadPerSec
}

// pack returns the form in which the claim's record stores value; edit makes that record, for ttl. A value that does not fit into the
// record is first written to the Object Store, so that no record ever refers to a missing object, and the claim is renewed until then.
func (c *Claim) pack(ctx context.Context, value []byte, ttl time.Duration, edit func(*claimRecord)) (p packed, data []byte, err error) {
	f := c.flight
	if len(value) > f.cfg.MaxValue {
		return p, nil, fmt.Errorf("%w: key %q: %d bytes, Config.MaxValue is %d", kvlock.ErrTooLarge, c.key, len(value), f.cfg.MaxValue)
	}
	data = value
	if len(value) > compressAbove {
		smaller, saves, err := f.codec.Compress(value)
		if err != nil {
			return p, nil, fmt.Errorf("kvlock: %w", err)
		}
		if saves {
			p, data = packed{Codec: compress.Zstd, Size: len(value)}, smaller
		}
	}
	c.mu.Lock()
	r, ended := c.record, c.ended
	c.mu.Unlock()
	if ended != nil {
		return p, nil, nil // the write of the record reports that
	}

	// The room depends on the record as it will be written.
	claimTTL := time.Duration(r.TTL) * time.Second
	r.HandOff, r.Value = false, p
	edit(&r)
	f.sign(&r)
	meta, err := kv.Encode(r, nil)
	if err != nil {
		return p, nil, err
	}
	room := f.messageRoom() - len(meta)
	if len(data) <= room {
		return p, data, nil
	}
	if f.cfg.LargeValueBucket == "" {
		return p, nil, fmt.Errorf("%w: key %q: %d bytes, %d as they are stored, and %d fit into one message: "+
			"set Config.LargeValueBucket to an Object Store bucket, or raise the server's max_payload",
			kvlock.ErrTooLarge, c.key, len(value), len(data), room)
	}
	// An upload may take longer than the claim's TTL.
	held, stop := c.AutoRenew(ctx, claimTTL)
	defer stop()
	name := fmt.Sprintf("%s-%d-%s", c.id, r.Attempt, nuid.Next())
	p.Object = &object{Bucket: f.cfg.LargeValueBucket, Digest: digest(data), Name: name, Size: len(data)}
	p.Size = len(value)
	return p, nil, f.upload(held, c.key, p, data, ttl)
}

// messageRoom returns the number of bytes of data that fit into one message.
func (f *Flight) messageRoom() int {
	size := f.store.Conn.MaxPayload()
	if f.store.MaxMessage > 0 {
		size = min(size, f.store.MaxMessage)
	}
	return int(size - min(headroom, size/4))
}

// upload writes data as an object that expires after the record that will refer to it: its TTL is the record's TTL plus the longest time
// of both writes. One round trip for each 512 KB, and one for the description.
func (f *Flight) upload(ctx context.Context, key string, p packed, data []byte, ttl time.Duration) error {
	bound := uploadTime(len(data))
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	ttl += (bound + 2*f.store.OpTimeout).Truncate(time.Second) + time.Second
	o := *p.Object
	size := min(chunkBytes, f.messageRoom())
	chunks := 0
	for chunk := range slices.Chunk(data, size) {
		m := f.part(o.chunks(), o.Name+"-"+strconv.Itoa(chunks), chunk, ttl)
		if err := f.sendPart(ctx, key, o.Bucket, m); err != nil {
			return err
		}
		chunks++
	}

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
	return f.sendPart(ctx, key, o.Bucket, f.part(subject, o.Name, description, ttl))
}

// part returns a message of an object. By the id the server stores it once although its acknowledgement was lost.
func (f *Flight) part(subject, id string, data []byte, ttl time.Duration) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = data
	m.Header.Set(jetstream.MsgIDHeader, id)
	m.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(int64(ttl/time.Second), 10)+"s")
	return m
}

// sendPart sends m until it is acknowledged, for at most OpTimeout.
func (f *Flight) sendPart(ctx context.Context, key, bucket string, m *nats.Msg) error {
	ctx, cancel := f.store.Bound(ctx, f.store.OpTimeout)
	defer cancel()
	return f.store.Persist(ctx, "write the object of", key, func() error {
		_, err := f.store.Send(ctx, objectStream(bucket), m, kv.SendTimeout)
		return err
	})
}

// fetch reads the data of an object. It returns errBroken for a missing or incomplete object only when the leader of
// its stream confirms that: a replica may lag behind. One round trip for each 4 MB, and more when a replica lagged behind.
func (f *Flight) fetch(ctx context.Context, key string, o object) ([]byte, error) {
	ctx, cancel := f.store.Bound(ctx, uploadTime(o.Size))
	defer cancel()
	stream := objectStream(o.Bucket)
	data, err := f.store.Get.All(ctx, stream, o.chunks(), o.Size)
	if err == nil && o.matches(data) {
		return data, nil
	}
	data, err = f.store.Get.AllLeader(ctx, stream, o.chunks(), o.Size, f.store.OpTimeout)
	switch {
	case err != nil:
		return nil, f.store.Unavailable(ctx, "read the object of", []string{key}, err)
	case !o.matches(data):
		return nil, fmt.Errorf("%w: object %s in bucket %s has not the %d bytes that were written", errBroken, o.Name, o.Bucket, o.Size)
	}
	return data, nil
}

func (o object) matches(data []byte) bool { return len(data) == o.Size && digest(data) == o.Digest }

// LargeValueConfig returns the stream for an Object Store bucket that Config.LargeValueBucket can name. It is made by
// hand rather than with CreateObjectStore so that AllowMsgTTL is on: each object then expires by itself, a little later than the record
// that refers to it. An object without a record expires too: its claim was lost, or its key invalidated or recomputed. No collector is
// needed. nats.go and `nats object` read the bucket as any other.
//
// Set MaxBytes: a full bucket evicts nothing, but values that need the bucket are not stored.
func LargeValueConfig(cfg kvlock.BucketConfig) jetstream.StreamConfig {
	sc := kvlock.StreamConfig(cfg)
	sc.Name = objectStream(cfg.Bucket)
	sc.Subjects = []string{objectPrefix(cfg.Bucket) + "C.>", objectPrefix(cfg.Bucket) + "M.>"}
	sc.MaxMsgsPerSubject, sc.DenyDelete, sc.RePublish = 0, false, nil
	sc.AllowRollup = true // nats.go removes an object with it
	return sc
}

// CreateLargeValueBucket makes the Object Store bucket if it does not exist; an existing one is left as it is. Like
// kvlock.CreateBucket it is for tests, demos and embedded servers, and tries again while a cluster is not ready. One or
// two round trips.
func CreateLargeValueBucket(ctx context.Context, js jetstream.JetStream, cfg kvlock.BucketConfig) error {
	return kv.CreateStream(ctx, js, "large value bucket", cfg.Bucket, LargeValueConfig(cfg))
}

const largeMaker = "flight.CreateLargeValueBucket"

// checkLargeValues returns an error for every setting of a bucket that is not safe for large values. The name "" is valid, for no bucket.
// One round trip.
func checkLargeValues(ctx context.Context, store *kv.Store, bucket string) error {
	if bucket == "" {
		return nil
	}
	ctx, cancel := store.Bound(ctx, store.OpTimeout)
	defer cancel()
	info, err := kv.StreamInfo(ctx, store.JS, bucket, objectStream(bucket), largeMaker)
	if err != nil {
		return err
	}
	name, sc := fmt.Sprintf("kvlock: large value bucket %q was not made with %s", bucket, largeMaker), info.Config
	return errors.Join(
		validate.If(!sc.AllowMsgTTL,
			"%s: AllowMsgTTL is off: its objects would stay for ever; make the bucket again", name),
		validate.If(!sc.AllowDirect, "%s: AllowDirect is off: an object could not be read in one round trip", name),
		validate.If(sc.MaxMsgsPerSubject > 0,
			"%s: it keeps %d messages of a subject: an object has more; lift MaxMsgsPerSubject", name, sc.MaxMsgsPerSubject),
		kv.CheckKept(name, sc))
}

func objectStream(bucket string) string { return "OBJ_" + bucket }
func objectPrefix(bucket string) string { return "$O." + bucket + "." }
