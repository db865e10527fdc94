package worker

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

// Headers of the message of a dead letter. With them, a consumer of headers only can list and group letters.
const (
	// HeaderDeadReason holds the letter's Reason.
	HeaderDeadReason = "Dead-Reason"

	// HeaderDeadSignature holds the letter's Signature.
	HeaderDeadSignature = "Dead-Signature"

	// HeaderDeadWorker holds the beginning of the letter's Worker.
	HeaderDeadWorker = "Dead-Worker"
)

// Headers of a job that was replayed from the dead letters.
const (
	// HeaderReplay holds the number of replays of the job, from 1.
	HeaderReplay = "Job-Replay"

	// HeaderReplayOf holds the letter: "<dead letter stream>:<sequence>".
	HeaderReplayOf = "Job-Replay-Of"

	// HeaderResume holds the job whose steps (package step) this job has too, see [DeadLetter.Resume].
	HeaderResume = "Job-Resume"
)

const (
	deadKept     = 30 * 24 * time.Hour
	deadWindow   = 24 * time.Hour // of duplicates
	maxErrorText = 4 << 10

	// encodingGzip marks a payload that is compressed in the message.
	encodingGzip = "gzip"

	// headerRoom is the number of bytes that are left for the headers of a dead letter's message.
	headerRoom = 1 << 10

	// maxPayload bounds the payload that ParseDeadLetter decompresses. It is the largest message that a server can be configured to accept.
	maxPayload = 64 << 20

	// maxDeadSubject bounds the subject of a dead letter's message. A server drops the connection that sends a longer line than its
	// max_control_line, 4 KiB by default, which the job's own subject may nearly fill.
	maxDeadSubject = 3 << 10

	// minPart is the smallest size of a part of a large letter that is tried. A stream that refuses it takes no letter.
	minPart = 16 << 10
)

// ErrDeadLetter is returned when bytes are not a dead letter.
var ErrDeadLetter = errors.New("worker: not a dead letter")

// Reason is the reason that a job was given up.
type Reason string

const (
	// ReasonDiscarded means that the handler returned [Discard].
	ReasonDiscarded Reason = "discarded"

	// ReasonExhausted means that the last attempt failed, or its worker died.
	ReasonExhausted Reason = "exhausted"

	// ReasonUndecodable means that Policy.Decode refused the payload.
	ReasonUndecodable Reason = "undecodable"
)

// DeadLetter is a job that was given up, with all data needed to find the reason and to run the job again. Its JSON is the body of a
// message on <DeadSubject>.<stream>.<original subject>, cut at 3 KiB. Fields may be added, never changed.
type DeadLetter struct {
	// Attempts is the number of attempts used.
	Attempts int `json:"attempts"`

	// Consumer is the durable name of the consumer that gave up.
	Consumer string `json:"consumer"`

	// DeadAt is the time at which the job was given up, by the worker's clock.
	DeadAt time.Time `json:"deadAt"`

	// Deliveries is the number of deliveries of the message.
	Deliveries int `json:"deliveries"`

	// EnqueuedAt is the time at which the stream stored the job, by the server's clock.
	EnqueuedAt time.Time `json:"enqueuedAt"`

	// Error is the text of the last error, at most 4 KiB.
	Error string `json:"error"`

	// Header holds the headers of the job. Bytes that are not UTF-8 are replaced.
	Header map[string][]string `json:"header,omitempty"`

	// ID is the job's ID, see Info.
	ID string `json:"id"`

	// MaxAttempts is the number of attempts that the policy allowed.
	MaxAttempts int `json:"maxAttempts"`

	// Parts is set when the letter was too large for one message. Its JSON is then in the bodies of the messages with these sequences in the
	// dead letter stream, in this order, and this letter has neither payload nor headers. [ParseDeadLetter] of the joined bodies returns the
	// letter.
	Parts []uint64 `json:"parts,omitempty"`

	// Payload is the job's payload, byte for byte (base64 in JSON).
	Payload []byte `json:"payload"`

	// PayloadEncoding is "gzip" in a message when the letter would not fit otherwise. ParseDeadLetter decompresses the payload and leaves
	// PayloadEncoding empty.
	PayloadEncoding string `json:"payloadEncoding,omitempty"`

	// Reason is the reason that the job was given up.
	Reason Reason `json:"reason"`

	// Sequence is the job's position in the stream.
	Sequence uint64 `json:"sequence"`

	// Signature is the text of the error without the parts that differ between jobs (numbers, ids, quoted values). It is equal for errors of
	// one kind. At most 200 bytes.
	Signature string `json:"signature"`

	// Stack is the stack of a panic, at most 8 KiB.
	Stack string `json:"stack,omitempty"`

	// Stream is the stream that held the job.
	Stream string `json:"stream"`

	// Subject is the subject to which the job was published.
	Subject string `json:"subject"`

	// Version is the version of the program that gave up.
	Version string `json:"version,omitempty"`

	// Worker is the Config.ID of the worker that gave up.
	Worker string `json:"worker"`
}

// Resume returns the value of [HeaderResume] with which a replay of the letter's job does not repeat steps whose results are recorded. It
// works for as long as the steps are kept (Config.StepTTL), within the same stream and consumer; later the job starts over.
func (l DeadLetter) Resume() string {
	if key := nats.Header(l.Header).Get(HeaderResume); journal.ValidKey(key) {
		return key // it was a replay itself
	}
	return journal.Key(l.Sequence, l.EnqueuedAt)
}

// ParseDeadLetter reads the body of a dead letter's message. The error wraps [ErrDeadLetter].
func ParseDeadLetter(data []byte) (DeadLetter, error) {
	var letter DeadLetter
	if err := json.Unmarshal(data, &letter); err != nil {
		return DeadLetter{}, fmt.Errorf("%w: %w", ErrDeadLetter, err)
	}
	if letter.Stream == "" || letter.Subject == "" {
		return DeadLetter{}, fmt.Errorf("%w: stream or subject is missing", ErrDeadLetter)
	}
	switch letter.PayloadEncoding {
	case "":
	case encodingGzip:
		payload, err := unpack(letter.Payload)
		if err != nil {
			return DeadLetter{}, fmt.Errorf("%w: payload: %w", ErrDeadLetter, err)
		}
		letter.Payload, letter.PayloadEncoding = payload, ""
	default:
		return DeadLetter{}, fmt.Errorf("%w: unknown payload encoding %q", ErrDeadLetter, letter.PayloadEncoding)
	}
	return letter, nil
}

// readDeadLetter returns the job of a dead letter.
func (l *list) readDeadLetter(m jsapi.Message) (StoredJob, bool) {
	stream, to, _ := strings.Cut(strings.TrimPrefix(m.Subject, l.client.cfg.DeadSubject+"."), ".")
	letter, err := ParseDeadLetter(m.Data)
	if stream != l.client.cfg.Stream || err != nil || strings.HasPrefix(to, "$") {
		return StoredJob{}, false // a letter of another stream, an advisory, or a part or record of a letter
	}
	return StoredJob{
		Consumer: letter.Consumer, Header: letter.Header, ID: letter.ID, DeadLetter: &letter, Payload: letter.Payload, Sequence: m.Sequence,
		Since: m.Time, State: StateDead, Stream: letter.Stream, Subject: to,
	}, true
}

// encode returns the letter's JSON. The payload is compressed if the JSON is longer than limit (0 for no limit) and compression makes it
// shorter.
func (l DeadLetter) encode(limit int) ([]byte, error) {
	data, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("worker: encode dead letter: %w", err)
	}
	if limit <= 0 || len(data) <= limit {
		return data, nil
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, werr := writer.Write(l.Payload)
	if err = errors.Join(werr, writer.Close()); err != nil {
		return nil, fmt.Errorf("worker: pack dead letter: %w", err)
	}
	if packed.Len() >= len(l.Payload) {
		return data, nil
	}
	l.Payload, l.PayloadEncoding = packed.Bytes(), encodingGzip
	return l.encode(0)
}

func unpack(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	payload, err := io.ReadAll(io.LimitReader(reader, maxPayload+1))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("unpacks to more than %d bytes", maxPayload)
	}
	return payload, nil
}

// deadLetter calls the policy's OnDeadLetter, publishes the dead letter of a job, and returns nil once the server has stored
// it. The message ID is made of the job's place in its stream, so that a repetition after a lost answer or a crash is the same
// letter.
func (w *Worker) deadLetter(d *delivery, reason Reason, cause error) error {
	letter := w.letter(d, reason, cause)
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.SettleTimeout)
	defer cancel()
	if err := w.onDeadLetter(ctx, d.policy, letter); err != nil {
		return err
	}
	return repeat(ctx, firstWait, isConnected, func() error {
		_, err := publishDeadLetter(ctx, w.js, w.cfg.DeadSubject, letter, w.cfg.RequestTimeout)
		return err
	})
}

func (w *Worker) letter(d *delivery, reason Reason, cause error) DeadLetter {
	letter := DeadLetter{
		Attempts: d.info.Attempt, Consumer: d.info.Consumer, DeadAt: time.Now().UTC(),
		Deliveries: d.info.Deliveries, EnqueuedAt: d.info.EnqueuedAt.UTC(), Error: clip(cause.Error(), maxErrorText),
		Header: d.msg.Header, ID: d.info.ID, MaxAttempts: d.info.MaxAttempts, Payload: d.msg.Data, Reason: reason,
		Sequence: d.info.Sequence, Signature: cmp.Or(signatureOf(cause.Error()), "(no text)"), Stream: d.info.Stream, Subject: d.info.Subject,
		Version: clip(w.cfg.Version, maxShort), Worker: w.cfg.ID,
	}
	if fatal, ok := errors.AsType[*PanicError](cause); ok {
		letter.Stack = clip(string(fatal.Stack), maxStacks)
	}
	return letter
}

// PublishDeadLetter stores a letter under <deadSubject>.<Stream>.<Subject> and returns its sequence once the server has confirmed it. A
// worker does so by itself; this function is for programs that give up jobs without a worker. If it is repeated within the stream's
// duplicate window, the letter is stored once.
//
// A letter that does not fit into a message is compressed, and stored in parts if it still does not fit: one round trip for each part, and
// one for the letter behind them.
func PublishDeadLetter(ctx context.Context, js jetstream.JetStream, deadSubject string, letter DeadLetter) (uint64, error) {
	if letter.Stream == "" || letter.Subject == "" {
		return 0, fmt.Errorf("%w: stream or subject is missing", ErrDeadLetter)
	}
	const each = 5 * time.Second
	return publishDeadLetter(ctx, js, deadSubject, letter, each)
}

func publishDeadLetter(ctx context.Context, js jetstream.JetStream, prefix string, letter DeadLetter, each time.Duration) (uint64, error) {
	limit := int(js.Conn().MaxPayload()) - headerRoom
	whole, err := letter.encode(limit)
	if err != nil {
		return 0, err
	}
	var sequence uint64
	p := letterStore{each: each, js: js, letter: letter, prefix: prefix + "." + letter.Stream + "."}
	if len(whole) <= limit {
		if sequence, err = p.store(ctx, letter.Subject, whole, letter.messageID()); !jsapi.IsTooLarge(err) {
			return sequence, err
		}
	}
	// The stream's limit may be lower than the server's.
	for limit = min(limit, len(whole)-1); limit >= minPart; limit /= 2 {
		if sequence, err = p.storeParts(ctx, whole, limit); !jsapi.IsTooLarge(err) {
			return sequence, err
		}
	}
	return 0, err
}

// letterStore stores one letter.
type letterStore struct {
	each   time.Duration // for one request
	js     jetstream.JetStream
	letter DeadLetter
	prefix string // the prefix of the letter's subjects, with the last dot
}

// storeParts stores the letter's JSON in parts of at most limit bytes, and last a letter with the sequences of the parts. A call that ends
// in between leaves parts without a letter, which the next call uses.
func (p letterStore) storeParts(ctx context.Context, whole []byte, limit int) (uint64, error) {
	stub := p.letter
	stub.Header, stub.Payload, stub.Parts = nil, nil, nil
	chunks := slices.Collect(slices.Chunk(whole, limit))
	for i, chunk := range chunks {
		seq, err := p.store(ctx, fmt.Sprintf("%s.%d.%d", jobmsg.TokenPart, p.letter.Sequence, i+1), chunk,
			fmt.Sprintf("%s:part:%d:%d", p.letter.messageID(), i+1, len(chunks)))
		if err != nil {
			return 0, err
		}
		stub.Parts = append(stub.Parts, seq)
	}
	data, err := stub.encode(0)
	if err != nil {
		return 0, err
	}
	return p.store(ctx, stub.Subject, data, stub.messageID())
}

func (p letterStore) store(ctx context.Context, subject string, data []byte, id string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, p.each)
	defer cancel()
	to := p.prefix + subject
	if len(to) > maxDeadSubject {
		to = strings.TrimRight(strings.ToValidUTF8(to[:maxDeadSubject], ""), ".")
	}
	msg := nats.NewMsg(to)
	msg.Data = data
	if subject == p.letter.Subject { // parts need no headers for lists and groups
		msg.Header.Set(HeaderDeadReason, string(p.letter.Reason))
		msg.Header.Set(HeaderDeadSignature, p.letter.Signature)
		msg.Header.Set(HeaderDeadWorker, clip(p.letter.Worker, maxShort))
	}
	ack, err := p.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id))
	if err != nil {
		return 0, fmt.Errorf("worker: publish dead letter to %s: %w", msg.Subject, err)
	}
	return ack.Sequence, nil
}

// messageID returns an ID that is the same whenever this consumer gives this job up. It has the time at which the job was stored, because
// the sequences of a stream that was deleted and made again start over.
func (l DeadLetter) messageID() string {
	return fmt.Sprintf("dead:%s:%s:%d:%d", l.Stream, l.Consumer, l.Sequence, l.EnqueuedAt.UnixNano())
}

const (
	maxSignature = 200 // bytes
	digits       = "0123456789"

	// sightBytes is how far before and after a number the words are that make it a code.
	sightBytes = 24
)

// rule replaces a pattern in a text that has one of some characters, without which no text matches.
type rule struct {
	of      string
	pattern *lazyregexp.Regexp
	with    string
}

func replace(text string, rules []rule) string {
	for _, r := range rules {
		if strings.ContainsAny(text, r.of) {
			text = r.pattern.ReplaceAllString(text, r.with)
		}
	}
	return text
}

// signatureRules replace, in turn, what differs between errors of one cause. What they put in has no digits, so that no later rule finds
// it.
var signatureRules = []rule{
	// Members of JSON that name the cause keep their values. Other quoted texts are values of one job.
	{`"`, lazyregexp.New(`(?i)"(error_?|err_?|status_?)?(code|type|status|reason|error|message|msg|detail|title)"\s*:\s*`), "$1$2: "},
	{
		`"`, lazyregexp.New(`(?i)\b((?:error_?|err_?|status_?)?(?:code|type|status|reason|error|message|msg|detail|title)): ` +
			`"((?:[^"\\]|\\.)*)"`), "$1: $2",
	},
	{"\"`", lazyregexp.New(`"(?:[^"\\]|\\.)*"|\\"(?:[^"\\]|\\[^"])*\\"|` + "`[^`]*`"), `"…"`},
	{`'`, lazyregexp.New(`(^|[^\pL\pN])'[^']*'`), `$1"…"`},
	{`/`, lazyregexp.New(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]*[^\s"'<>.,;:)\]}]`), "<url>"},
	{`:`, lazyregexp.New(`\barn:[^\s,;"'<>()]*[^\s,;"'<>().:]`), "<arn>"},
	{`@`, lazyregexp.New(`[\pL\pN._%+-]+@[\pL\pN-]+(?:\.[\pL\pN-]+)*`), "<email>"},
	{`k`, lazyregexp.New(`\b(lookup) [^\s:]+(:| on )`), "$1 <host>$2"},
	{`N`, lazyregexp.New(`\b(ENOTFOUND|EAI_AGAIN) [^\s:]+`), "$1 <host>"},
}

// signatureTimes replace times, IPv4 addresses and paths.
var signatureTimes = []rule{
	{
		digits, lazyregexp.New(`\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?(?:\d{1,2}[ -])?(?:Jan(?:uary)?|Feb(?:ruary)?|` +
			`Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:tember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)[ -]+\d{1,4}` +
			`(?:,? \d{4})?(?:[ T]\d\d:\d\d(?::\d\d)?(?: \d{4}\b)?(?: (?:GMT|UTC|[+-]\d{4}))*)?`), "#",
	},
	{
		digits, lazyregexp.New(`\b\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)\b)*` +
			`(?: m=[+-][\d.]+)?)?`), "#",
	},
	{digits, lazyregexp.New(`\b\d{1,2}:\d\d:\d\d(?:\.\d+)?(?: ?[AP]M)?\b`), "#"},
	{digits, lazyregexp.New(`\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?::\d{1,5})?\b`), "<host>"},
	{"/\\", lazyregexp.New(`(^|[\s=(:,\[>])(?:~|\.{1,2}|[A-Za-z]:)?(?:/|\\)[^\s:,;"'<>()\[\]]+`), "$1<path>"},
	{digits, lazyregexp.New(`\b\d+(?:\.\d+)?[µμ]s\b`), "#"},
}

// signatureEnds tidy what the words of a text have become.
var signatureEnds = []rule{
	{`=`, lazyregexp.New(`#={1,2}(\W|$)`), "#$1"}, // the padding of base64
	{`#`, lazyregexp.New(`(^|[\s=(:])[-+#]#`), "$1#"},
	{`,`, lazyregexp.New(`#(?:, ?#)+`), "#"},
	{`,`, lazyregexp.New(`<host>(?:, <host>)+`), "<host>"},
	{`,`, lazyregexp.New(`<email>(?:, <email>)+`), "<email>"},
	{" \n\t\r\v\f", lazyregexp.New(`\s+`), " "},
	{`#`, lazyregexp.New(`# (?i:(?:nano|micro|milli)?seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|bytes?|[kmgtp]i?b|b)\b`), "#"},
}

var (
	sixes      = lazyregexp.New(`\[?[0-9A-Fa-f.]*(?::[0-9A-Fa-f.]*){2,}(?:%\w+)?\]?(?::\d{1,5})?`) // addresses of IPv6 and of hardware
	wordOf     = lazyregexp.New(`[A-Za-z0-9_](?:[A-Za-z0-9_./+~%*-]*[A-Za-z0-9_*])?(?::\d{2,5}\b)?`)
	hostOf     = lazyregexp.New(`^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.(?:` + domains + `)$`)
	fileOf     = lazyregexp.New(`(?i)^[^/]*(?:/[^/]+){2,}$|^[\w./+~-]+\.(?:` + extensions + `)$`)
	namedID    = lazyregexp.New(`(?:\b(?i:(?:\w+[_-])?id|uuid)[=:]? *|[a-z]I[dD][=:] *)$`)
	codeBefore = lazyregexp.New(`(?:(?:\b|_)(?i:(?:status|code|errno|sqlstate|state|exit|signal|rcode|alert|http(?:/[0-9.]+)?)` +
		`[\s:=#(\["_-]*|err(?:or)?[ =(]*)|[a-z](?:Code[\s:=]*|Status[\s:=]*|Error[ =]*)|SQLSTATE\[HY000\] ?\[)$`)
	askBefore = lazyregexp.New(`(?i)(?:\b(?:with|got|returned|returns|answered|received|responded|response|said|replied|was|and|` +
		`smtp|unexpected)[ :]*|: |^|[(\[])$`)
	countAfter = lazyregexp.New(`^ (?:of |[a-z]{2,}[^s\W]s\b)`)
	reason     = lazyregexp.New(`^[ -](?:[45]\.\d{1,3}\.\d|Bad Request|Unauthorized|Payment Req|Forbidden|Not Found|Method Not|Conflict|` +
		`Gone|Too Many|Internal S|Not Impl|Bad Gate|Service |Gateway T)`)
	codeOf   = lazyregexp.New(`^(?:[A-Z]{0,2}\d{1,5}|\d[0-9A-Z]{4}|0x8[0-9A-Fa-f]{7}|[45](?:\.\d{1,3}){2})$`)
	statusOf = lazyregexp.New(`^[45]\d\d(?:-[45](?:\.\d{1,3}){2})?$`)
	enhanced = lazyregexp.New(`(?:^|\D)[245]\d\d[ -]$`)
	shuffled = lazyregexp.New(`-[bcdfghjklmnpqrstvwxz]{5}$`) // the end of a pod's name
	versions = lazyregexp.New(`^(?i:h(?:ttp/?)?[123](?:\.[01])?|s3|ec2|k8s|ipv?[46]|utf-?(?:8|16|32)|sha-?(?:1|2|3|224|256|384|512)|` +
		`md[245]|crc(?:16|32|64)|x(?:509|86(?:[-_]64)?|64|25519)|ed25519|(?:amd|arm|win)(?:32|64)|i[36]86|` +
		`base(?:16|32|58|62|64)(?:url)?|mp[234]|m4[av]|h26[45]|oauth[12]?|pkcs-?\d{1,2}|aes-?(?:128|192|256)|[rehp]s(?:256|384|512)|` +
		`rsa-?\d{4}|p(?:256|384|521)|u?(?:int|float)(?:8|16|32|64)|sqlite3|python[23]|psycopg[23]|` +
		`boto3|urllib[23]|log4j|neo4j|route53|[ilp]1[08]n|e2e|b2[bc]|imap4|pop3|bzip2|lz4|(?:tls|ssl)v?[123](?:\.[0-3])?|socks[45]|` +
		`iso-?8859-\d{1,2}|iso8601|rfc\d{3,4}|ora-\d{5}|aadsts\d{4,6}|v\d{1,2}(?:(?:alpha|beta)\d)?|html5|argon2(?:id|i|d)?)$`)
	versionIn = lazyregexp.New(`EC2|S3|K8s|B(?:ase|ASE)64|U(?:tf|TF)8|H(?:ttp|TTP)2|O[Aa]uth2|S(?:ha|HA)(?:1|256|512)|X509|IPv[46]|M[Dd]5`)
	parts     = lazyregexp.New(`[-_./+~%*]+`)
)

const (
	domains = `com|net|org|io|dev|app|edu|gov|info|biz|cloud|tech|online|xyz|ai|co|uk|de|fr|nl|il|us|eu|ca|au|jp|cn|br|ru|es|pl|ch|se|dk|fi|` +
		`cz|kr|za|local|localdomain|internal|lan|intra|corp|svc|cluster|arpa|example|test|invalid`
	extensions = `go|py|js|ts|rb|java|php|rs|c|h|cpp|json|jsonl|ya?ml|toml|xml|csv|tsv|txt|log|md|html?|pdf|png|jpe?g|gif|webp|` +
		`svg|mp[34]|m4[av]|mov|wav|srt|vtt|zip|t?gz|tar|zst|bz2|parquet|avro|sql|db|sqlite|lock|tmp|bak|conf|cfg|ini|env|pem|crt|key|` +
		`sock|pid|xlsx?|docx?|sh|so|exe|dll|bin|dat`
)

// signatureOf returns the signature of an error text: equal for texts that differ only in ids, numbers, addresses, paths and quoted values.
// HTTP, SMTP and other codes of errors stay. At most 200 bytes of valid UTF-8 on one line; time grows linearly with the text, of which the
// first 4 kB count.
func signatureOf(text string) string {
	text = replace(clip(text, maxErrorText), signatureRules)
	text = replace(sixes.ReplaceAllStringFunc(text, address), signatureTimes)
	var out strings.Builder
	end := 0
	for _, at := range wordOf.FindAllStringIndex(text, -1) {
		out.WriteString(text[end:at[0]])
		end = at[1]
		before, after := text[max(0, at[0]-sightBytes):at[0]], text[end:min(len(text), end+sightBytes)]
		out.WriteString(wordIn(text[at[0]:end], before, after))
	}
	return redact.Clip(strings.TrimSpace(replace(out.String()+text[end:], signatureEnds)), maxSignature)
}

// address replaces an address of IPv6 or of hardware. Words that look like one stay.
func address(text string) string {
	bare := strings.TrimRight(text, ":")
	_, noAddr := netip.ParseAddr(strings.Trim(bare, "[]"))
	_, noPort := netip.ParseAddrPort(bare)
	_, noMAC := net.ParseMAC(bare)
	if !strings.ContainsAny(bare, digits) && bare != "" || noAddr != nil && noPort != nil && noMAC != nil {
		return text
	}
	return "<host>" + text[len(bare):]
}

// wordIn returns what stands for a word in a signature: the word itself, or what it is. It looks at the text around the word.
func wordIn(word, before, after string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") == "" {
		return word
	}
	name, port, hasPort := strings.Cut(word, ":")
	isStatus := statusOf.MatchString(port) && port != "443" && !strings.ContainsAny(name, ".-"+digits)
	if hasPort && (isStatus || codeBefore.MatchString(name) || fileOf.MatchString(name)) {
		return wordIn(name, before, ":"+port+after) + ":" + wordIn(port, before+name+":", after)
	}
	hasDigit := strings.ContainsAny(name, digits)
	switch {
	case hasPort, hostOf.MatchString(name):
		return "<host>"
	case namedID.MatchString(before) && (hasDigit || strings.ToLower(name) != name):
		return "#"
	case hasDigit && isCode(name, before, after):
		return word
	case fileOf.MatchString(name) && !versions.MatchString(name):
		return "<path>"
	case hasDigit && isVersion(name):
		return word
	case hasDigit, strings.Contains(name, "**"), shuffled.MatchString(name), isShuffled(name):
		return "#"
	}
	return word
}

// isCode reports whether a word with digits tells causes apart: a status of HTTP or SMTP, or a code of another protocol.
func isCode(word, before, after string) bool {
	switch {
	case codeBefore.MatchString(before):
		return codeOf.MatchString(word) || statusOf.MatchString(word)
	case statusOf.MatchString(word):
		return reason.MatchString(after) || askBefore.MatchString(before) && !countAfter.MatchString(after)
	}
	return strings.Count(word, ".") == 2 && enhanced.MatchString(before)
}

// isVersion reports whether all digits of a word belong to names such as http2 and sha256.
func isVersion(word string) bool {
	if versions.MatchString(word) {
		return true
	}
	for _, part := range parts.Split(versionIn.ReplaceAllString(word, ""), -1) {
		if strings.ContainsAny(part, digits) && !versions.MatchString(part) {
			return false
		}
	}
	return true
}

// isShuffled reports whether a long word without digits is none: its case changes at more than a third of its letters.
func isShuffled(word string) bool {
	changes := 0
	for i := 1; i < len(word); i++ {
		if (word[i]^word[i-1])&0x20 != 0 && word[i] >= 'A' && word[i-1] >= 'A' {
			changes++
		}
	}
	return len(word) >= 16 && changes*20 > len(word)*7
}

const (
	warnedEach = time.Minute // of the failures of one kind
	maxKinds   = 200         // of failures: all others are one kind
)

// failures counts failed attempts by handler and kind, for warnings.
type failures struct {
	// sorted bound signatures, each of which may take as much time as the rest of an attempt: one for each hash of the words of a text, so
	// that a kind is also counted while others fail very often.
	sorted [64]*rate.Limiter

	mu    sync.Mutex
	kinds map[string]*failureKind
}

type failureKind struct {
	count  int // since warned
	warned time.Time
}

func newFailures() *failures {
	const perSecond, atOnce = 4, 100
	f := &failures{kinds: make(map[string]*failureKind)}
	for i := range f.sorted {
		f.sorted[i] = rate.NewLimiter(perSecond, atOnce)
	}
	return f
}

// mayCount reports whether a failure is counted. Words that look like ids do not tell texts apart; a code such as 503 does.
func (f *failures) mayCount(pattern, text string, now time.Time) bool {
	const code = 4 // bytes
	words := fnv.New32a()
	_, _ = io.WriteString(words, pattern)
	for word := range strings.FieldsSeq(text) {
		if len(word) <= code || !strings.ContainsAny(word, digits) {
			_, _ = io.WriteString(words, word)
		}
	}
	return f.sorted[words.Sum32()%uint32(len(f.sorted))].AllowN(now, 1)
}

// add counts a failure. It returns the failures of its kind since the last warning if another is due, and otherwise 0.
func (f *failures) add(pattern, text string, now time.Time) int {
	if !f.mayCount(pattern, text, now) {
		return 0
	}
	name := pattern + " " + signatureOf(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds[name] == nil && len(f.kinds) >= maxKinds { // those that are due for a warning anyway make room
		maps.DeleteFunc(f.kinds, func(_ string, k *failureKind) bool { return now.Sub(k.warned) >= warnedEach })
	}
	if f.kinds[name] == nil && len(f.kinds) >= maxKinds {
		name = ""
	}
	kind := f.kinds[name]
	if kind == nil {
		kind = new(failureKind)
		f.kinds[name] = kind
	}
	kind.count++
	if now.Sub(kind.warned) < warnedEach {
		return 0
	}
	due := kind.count
	kind.count, kind.warned = 0, now
	return due
}
