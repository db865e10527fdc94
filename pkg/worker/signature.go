package worker

import (
	"hash/fnv"
	"io"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/internal/redact"
)

const (
	maxSignature = 200 // bytes
	digits       = "0123456789"

	// sightBytes is how far before and after a number the words are that make it a code.
	sightBytes = 24
)

// rule replaces a pattern in a text that has one of some characters, without which no text matches.
type rule struct {
	of      string
	pattern *regexp.Regexp
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
	{`"`, regexp.MustCompile(`(?i)"(error_?|err_?|status_?)?(code|type|status|reason|error|message|msg|detail|title)"\s*:\s*`), "$1$2: "},
	{
		`"`, regexp.MustCompile(`(?i)\b((?:error_?|err_?|status_?)?(?:code|type|status|reason|error|message|msg|detail|title)): ` +
			`"((?:[^"\\]|\\.)*)"`), "$1: $2",
	},
	{"\"`", regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\\"(?:[^"\\]|\\[^"])*\\"|` + "`[^`]*`"), `"…"`},
	{`'`, regexp.MustCompile(`(^|[^\pL\pN])'[^']*'`), `$1"…"`},
	{`/`, regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]*[^\s"'<>.,;:)\]}]`), "<url>"},
	{`:`, regexp.MustCompile(`\barn:[^\s,;"'<>()]*[^\s,;"'<>().:]`), "<arn>"},
	{`@`, regexp.MustCompile(`[\pL\pN._%+-]+@[\pL\pN-]+(?:\.[\pL\pN-]+)*`), "<email>"},
	{`k`, regexp.MustCompile(`\b(lookup) [^\s:]+(:| on )`), "$1 <host>$2"},
	{`N`, regexp.MustCompile(`\b(ENOTFOUND|EAI_AGAIN) [^\s:]+`), "$1 <host>"},
}

// signatureTimes replace times, IPv4 addresses and paths.
var signatureTimes = []rule{
	{
		digits, regexp.MustCompile(`\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?(?:\d{1,2}[ -])?(?:Jan(?:uary)?|Feb(?:ruary)?|` +
			`Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:tember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)[ -]+\d{1,4}` +
			`(?:,? \d{4})?(?:[ T]\d\d:\d\d(?::\d\d)?(?: \d{4}\b)?(?: (?:GMT|UTC|[+-]\d{4}))*)?`), "#",
	},
	{
		digits, regexp.MustCompile(`\b\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)\b)*` +
			`(?: m=[+-][\d.]+)?)?`), "#",
	},
	{digits, regexp.MustCompile(`\b\d{1,2}:\d\d:\d\d(?:\.\d+)?(?: ?[AP]M)?\b`), "#"},
	{digits, regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?::\d{1,5})?\b`), "<host>"},
	{"/\\", regexp.MustCompile(`(^|[\s=(:,\[>])(?:~|\.{1,2}|[A-Za-z]:)?(?:/|\\)[^\s:,;"'<>()\[\]]+`), "$1<path>"},
	{digits, regexp.MustCompile(`\b\d+(?:\.\d+)?[µμ]s\b`), "#"},
}

// signatureEnds tidy what the words of a text have become.
var signatureEnds = []rule{
	{`=`, regexp.MustCompile(`#={1,2}(\W|$)`), "#$1"}, // the padding of base64
	{`#`, regexp.MustCompile(`(^|[\s=(:])[-+#]#`), "$1#"},
	{`,`, regexp.MustCompile(`#(?:, ?#)+`), "#"},
	{`,`, regexp.MustCompile(`<host>(?:, <host>)+`), "<host>"},
	{`,`, regexp.MustCompile(`<email>(?:, <email>)+`), "<email>"},
	{" \n\t\r\v\f", regexp.MustCompile(`\s+`), " "},
	{`#`, regexp.MustCompile(`# (?i:(?:nano|micro|milli)?seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|bytes?|[kmgtp]i?b|b)\b`), "#"},
}

var (
	sixes      = regexp.MustCompile(`\[?[0-9A-Fa-f.]*(?::[0-9A-Fa-f.]*){2,}(?:%\w+)?\]?(?::\d{1,5})?`) // addresses of IPv6 and of hardware
	wordOf     = regexp.MustCompile(`[A-Za-z0-9_](?:[A-Za-z0-9_./+~%*-]*[A-Za-z0-9_*])?(?::\d{2,5}\b)?`)
	hostOf     = regexp.MustCompile(`^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.(?:` + domains + `)$`)
	fileOf     = regexp.MustCompile(`(?i)^[^/]*(?:/[^/]+){2,}$|^[\w./+~-]+\.(?:` + extensions + `)$`)
	namedID    = regexp.MustCompile(`(?:\b(?i:(?:\w+[_-])?id|uuid)[=:]? *|[a-z]I[dD][=:] *)$`)
	codeBefore = regexp.MustCompile(`(?:(?:\b|_)(?i:(?:status|code|errno|sqlstate|state|exit|signal|rcode|alert|http(?:/[0-9.]+)?)` +
		`[\s:=#(\["_-]*|err(?:or)?[ =(]*)|[a-z](?:Code[\s:=]*|Status[\s:=]*|Error[ =]*)|SQLSTATE\[HY000\] ?\[)$`)
	askBefore = regexp.MustCompile(`(?i)(?:\b(?:with|got|returned|returns|answered|received|responded|response|said|replied|was|and|` +
		`smtp|unexpected)[ :]*|: |^|[(\[])$`)
	countAfter = regexp.MustCompile(`^ (?:of |[a-z]{2,}[^s\W]s\b)`)
	reason     = regexp.MustCompile(`^[ -](?:[45]\.\d{1,3}\.\d|Bad Request|Unauthorized|Payment Req|Forbidden|Not Found|Method Not|Conflict|` +
		`Gone|Too Many|Internal S|Not Impl|Bad Gate|Service |Gateway T)`)
	codeOf   = regexp.MustCompile(`^(?:[A-Z]{0,2}\d{1,5}|\d[0-9A-Z]{4}|0x8[0-9A-Fa-f]{7}|[45](?:\.\d{1,3}){2})$`)
	statusOf = regexp.MustCompile(`^[45]\d\d(?:-[45](?:\.\d{1,3}){2})?$`)
	enhanced = regexp.MustCompile(`(?:^|\D)[245]\d\d[ -]$`)
	shuffled = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz]{5}$`) // the end of a pod's name
	versions = regexp.MustCompile(`^(?i:h(?:ttp/?)?[123](?:\.[01])?|s3|ec2|k8s|ipv?[46]|utf-?(?:8|16|32)|sha-?(?:1|2|3|224|256|384|512)|` +
		`md[245]|crc(?:16|32|64)|x(?:509|86(?:[-_]64)?|64|25519)|ed25519|(?:amd|arm|win)(?:32|64)|i[36]86|` +
		`base(?:16|32|58|62|64)(?:url)?|mp[234]|m4[av]|h26[45]|oauth[12]?|pkcs-?\d{1,2}|aes-?(?:128|192|256)|[rehp]s(?:256|384|512)|` +
		`rsa-?\d{4}|p(?:256|384|521)|u?(?:int|float)(?:8|16|32|64)|sqlite3|python[23]|psycopg[23]|` +
		`boto3|urllib[23]|log4j|neo4j|route53|[ilp]1[08]n|e2e|b2[bc]|imap4|pop3|bzip2|lz4|(?:tls|ssl)v?[123](?:\.[0-3])?|socks[45]|` +
		`iso-?8859-\d{1,2}|iso8601|rfc\d{3,4}|ora-\d{5}|aadsts\d{4,6}|v\d{1,2}(?:(?:alpha|beta)\d)?|html5|argon2(?:id|i|d)?)$`)
	versionIn = regexp.MustCompile(`EC2|S3|K8s|B(?:ase|ASE)64|U(?:tf|TF)8|H(?:ttp|TTP)2|O[Aa]uth2|S(?:ha|HA)(?:1|256|512)|X509|IPv[46]|M[Dd]5`)
	parts     = regexp.MustCompile(`[-_./+~%*]+`)
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
