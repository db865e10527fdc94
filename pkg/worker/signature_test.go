package worker

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

const (
	lowers = "abcdefghijklmnopqrstuvwxyz"
	uppers = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// alphabets are those of the parts in braces of a text: {hex:8} is 8 digits of base 16.
var alphabets = map[string]string{
	"hex": digits + "abcdef", "HEX": digits + "ABCDEF", "n": digits, "a36": digits + lowers, "A36": digits + uppers, "a62": digits + lowers + uppers,
	"a64": digits + lowers + uppers + "-_", "pod": "bcdfghjklmnpqrstvwxz2456789", "a": lowers, "A": uppers, "d": "123456789",
}

var part = regexp.MustCompile(`\{(\w+):(\d+)\}`)

// vary returns a text with other parts in its braces.
func vary(text string, r *rand.Rand) string {
	for _, name := range [][2]string{
		{"{uuid}", "{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}"},
		{"{ip}", "{d:1}{d:1}.{d:1}.{n:1}.{d:1}"},
		{"{host}", "{a:6}.{a:4}-{n:2}.example.com"},
		{"{at}", "20{n:2}-0{d:1}-1{n:1}T1{n:1}:2{n:1}:3{n:1}.{d:3}Z"},
	} {
		text = strings.ReplaceAll(text, name[0], name[1])
	}
	return part.ReplaceAllStringFunc(text, func(match string) string {
		of := part.FindStringSubmatch(match)
		name := of[1]
		size, _ := strconv.Atoi(of[2]) // digits
		var out strings.Builder
		for range size {
			out.WriteByte(alphabets[name][r.IntN(len(alphabets[name]))])
		}
		if strings.HasSuffix(name, "36") { // an id of letters alone may be a word
			return out.String()[:size-1] + "7"
		}
		return out.String()
	})
}

// Each text is an error of a service. Its jobs make one group, and no other text is in it.
func TestSignatureIsOfOneCause(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	r := rand.New(rand.NewPCG(1, 2))
	for text := range strings.SplitSeq(strings.TrimSpace(serviceErrors), "\n") {
		want := ""
		for range 20 {
			of := vary(text, r)
			got := signatureOf(of)
			check.That(t, want == "" || got == want, "%q\n  is %q,\nand %q", of, got, want)
			want = got
		}
		check.That(t, seen[want] == "", "%q and %q are both %q", text, seen[want], want)
		seen[want] = text
		t.Log(want)
	}
}

const serviceErrors = `
stripe: no such charge ch_{a62:24}; request req_{a62:14}
stripe: no such payment intent pi_3{a62:23}: request req_{a62:14}
{"status":402,"message":"Your card was declined.","request-id":"req_{a62:14}","code":"card_declined","type":"card_error"}
{"status":402,"message":"Your card has expired.","request-id":"req_{a62:14}","code":"expired_card","type":"card_error"}
{"status":400,"message":"No such customer: 'cus_{a62:14}'","code":"resource_missing"}
Idempotent key in use {uuid}: 409 for acct_1{a62:15}
slack: channel_not_found: C0{A36:9} in T0{A36:8}
slack: not_in_channel: C024BE91{A:1} ts {n:10}.{n:6}
slack: POST https://hooks.slack.com/services/T0{A36:8}/B0{A36:8}/{a62:24}: 404 no_service
slack: hook T0{A36:8}/B0{A36:8}/{a62:24} is gone: 410
Status: 400 - ApiError 21211: invalid number +1555{n:7} of SM{hex:32}
Status: 400 - ApiError 21610: invalid number +1555{n:7} of SM{hex:32}
twilio: 503 Service Unavailable for AC{hex:32}, try in {d:2}s
sendgrid: 429 Too Many Requests, message {a64:22}.filter{n:4}.{n:5}.{HEX:9}.0
sendgrid: 503 Service Unavailable, message <{a64:22}@geopod-ismtpd-{d:1}>
operation error SES: SendEmail, https response error StatusCode: 400, RequestID: {uuid}, MessageRejected: Email address is not verified: {a:5}@{host}
operation error SES: SendEmail, https response error StatusCode: 454, RequestID: {uuid}, Throttling: Maximum sending rate exceeded
User: arn:aws:iam::{n:12}:user/{a:6} is not authorized to perform: ses:SendEmail
operation error S3: PutObject, https response error StatusCode: 503, RequestID: {A36:16}, HostID: {a62:20}/{a62:30}+{a62:24}=, api error SlowDown: Please reduce your request rate
operation error S3: GetObject, https response error StatusCode: 404, RequestID: {A36:16}, HostID: {a62:40}==, NoSuchKey: key uploads/{a36:8}/{uuid}.jpg
ERROR: duplicate key value violates unique constraint "users_{a:5}_key" (SQLSTATE 23505)
ERROR: could not serialize access due to concurrent update (SQLSTATE 40001) in transaction {n:6}
ERROR: deadlock detected (SQLSTATE 40P01): Process {d:4} waits for ShareLock on transaction {d:6}; blocked by process {d:5}
failed to connect to ` + "`host={host} user={a:6} database={a:4}`" + `: FATAL: too many connections (SQLSTATE 53300)
FATAL: password authentication failed for user "{a:7}" (SQLSTATE 28P01)
SQLSTATE[HY000] [2002] Connection refused on {host}:3306
Error 1205 (HY000): Lock wait timeout exceeded after {d:2} seconds
MOVED {d:4} {ip}:6379
redis: READONLY You can't write against a read only replica, won't retry {a36:12}
dial tcp {ip}:6379: connect: connection refused
dial tcp [2001:db8::{hex:4}]:4{n:3}: connect: no route to host
read tcp {ip}:5{n:4}->{ip}:6379: i/o timeout
dial tcp: lookup {host} on {ip}:53: no such host
dial tcp: lookup {a:7} on {ip}:53: server misbehaving
getaddrinfo ENOTFOUND {host}
connect to {host}:587 failed after {d:1}.{d:1}s
GET https://api.github.com/repos/{a:6}/{a:5}/hooks: 403 API rate limit of 5000 still exceeded until 20{d:2}-01-1{n:1} 10:0{n:1}:00 +0000 UTC [rate reset in {d:2}m{d:1}s]
github: delivery {uuid} of commit {hex:7} failed: 422 Unprocessable Entity
googleapi: Error 403: Quota exceeded for 'project_{n:12}', rateLimitExceeded, trace projects/{a:6}-{n:6}/traces/{hex:32}
googleapi: Error 503: The service is currently unavailable, trace {hex:32}/{n:18};o=1
rpc error: code = Unavailable desc = connection error: desc = "transport: dial {ip}:443"
rpc error: code = DeadlineExceeded desc = stream {d:3} of {uuid}
openai: Rate limit reached in organization org-{a62:24} on tokens per min: Limit 30000, Used {d:5}, Requested {d:4}. Please try again in {d:1}.{d:2}s
openai: 401 Incorrect API key provided: sk-{a:4}****{a:4}
pod pay-{pod:9}-{pod:5} of default: back-off {d:1}m{d:2}s restarting container
0/{d:1} nodes are available: {d:1} Insufficient cpu, pod pay-{pod:9}-{pod:5}
exit status 2 of worker-{n:2} in /tmp/build{n:9}/{a:5}/main.go:{d:3}
signal: killed, pid {d:5}, used {d:3} MiB of {d:1}.{d:1} GiB
open /var/lib/app/{a36:10}/{a:5}.json: permission denied
open uploads/{a:4}/{a:6}-{n:4}.csv: no such file or directory
C:\data\{a:6}\{a36:8}.tmp is in use [Errno 13]
550 5.1.1 <{a:5}@{host}>: Recipient address rejected: User unknown
421 4.7.0 [TSS0{d:1}] Messages from {ip} temporarily deferred
smtp: 550-5.7.1 {ip} has no reverse record, {a36:12}.{n:2} - gsmtp
x509: certificate is valid for {host}, {host}, not {host}
x509: certificate has expired or is not yet valid: current time {at} is after {at}
job {a36:12} failed
order ord-{a36:10} of user {n:6} is not paid
task 01{A36:24} is lost
segment {a62:27} is damaged
message {a62:22} was refused at {at}
blob sha256:{hex:64} is missing
token eyJ{a64:30}.eyJ{a64:40}.{a64:43} has expired at Mon, 0{d:1} Jan 20{n:2} 1{n:1}:04:05 GMT
nats: API error: code=503 err_code=10059 description=stream {A36:8} not found
device 0{hex:1}:1{hex:1}:2{hex:1}:3{hex:1}:4{hex:1}:5{hex:1} sent {d:3} bytes
attempt {d:1} of {d:2} timed out after {d:1}m{d:2}.{d:1}s
HTTP 429, wait for {d:4} ms
bank: 503
bank: 404
הזמנה {n:5} לא נמצאה
注文 {n:5} が見つかりません`

func TestSignatureKeepsCausesApart(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"status 503 of p1", "status 404 of p1"},
		{"HTTP 429", "HTTP 500"},
		{"code=404", "code=409"},
		{"503 Service Unavailable", "502 Bad Gateway"},
		{"server said 503 Service Unavailable", "server said 502 Bad Gateway"},
		{"get place 7: 404", "get place 7: 503"},
		{"returned 404", "returned 503"},
		{"550 5.1.1 no such user", "550 5.7.1 blocked"},
		{"421 4.7.0 later", "450 4.7.0 later"},
		{"(SQLSTATE 40001)", "(SQLSTATE 23505)"},
		{"code = Unavailable", "code = NotFound"},
		{"exit status 1", "exit status 2"},
		{"errno 111", "errno 113"},
		{"[Errno 2] x", "[Errno 13] x"},
		{`{"code":429,"id":"x"}`, `{"code":500,"id":"x"}`},
		{`{"error":{"code":"insufficient_quota"}}`, `{"error":{"code":"rate_limit"}}`},
		{"can't read a, won't retry", "can't write a, won't retry"},
		{"StatusCode: 403, x", "StatusCode: 503, x"},
		{"signal 9", "signal 15"},
		{"err_code=10058", "err_code=10059"},
		{"HTTP/1.1 503", "HTTP/1.1 404"},
		{"status:503", "status:404"},
		{"ORA-00001 x", "ORA-00060 x"},
		{"dial tcp 10.0.0.1:1: refused", "dial tcp 10.0.0.1:1: i/o timeout"},
		{"smtp: 550: no", "smtp: 421: no"},
		{"(404)", "(503)"},
		{"json.SyntaxError", "json.UnmarshalTypeError"},
		{"users.email is null", "users.phone is null"},
		{"read a/b", "write a/b"},
	} {
		check.That(t, signatureOf(pair[0]) != signatureOf(pair[1]), "%q and %q are both %q", pair[0], pair[1], signatureOf(pair[0]))
	}
}

func TestSignatureKeepsWords(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "EOF", "face added a decade ago", "http2: stream closed", "s3 and EC2InstanceNotFound", "ipv6 is off, use utf8 or UTF-8", "bad sha256 of x509 in base64",
		"mp4 of h264", "oauth2: token expired", "context deadline exceeded", "java.lang.NullPointerException", "rate_limit_exceeded", "application/json, and/or",
		"MyISAM GetObjectById ProvisionedThroughputExceededException", "בנק סגור", "銀行は閉まっています", "no such host, or host is down", "e.g. this", "api v1beta1",
		"TLS handshake, HTTP/2.0", "std::bad_alloc at a::b", "invalid: Foo", "RESOURCE_EXHAUSTED",
	} {
		check.Equal(t, signatureOf(text), text, text)
	}
	for text, want := range map[string]string{
		"status 429 after 1.5s": "status 429 after #", "line one\n\tline two": "line one line two", "bad \xff byte": "bad ? byte", "1,234 rows": "# rows",
		`place "ChIJ 12" not found`: `place "…" not found`, "open '/tmp/a b': no such file": `open "…": no such file`, "temperature -5": "temperature #",
		"mail to a.b@c.example: no": "mail to <email>: no", "[::1]:4222 fe80::1%eth0 127.0.0.1": "<host> <host> <host>", "redis:6379 is away": "<host> is away",
		"see https://a.example/x?y=1.": "see <url>.", "id: 404": "id: #", "run main.go:42": "run <path>:#", "zip /a/b.zip, ~/c and ../d": "zip <path>, <path> and <path>",
	} {
		check.Equal(t, signatureOf(text), want, text)
	}
	for _, unit := range []string{"a", "1", `"`, "'", "a.", "a@", "a-1/", ":1", "[", "code ", "é", "\\\"", "a:1 ", "x=", "{\"code\":\""} {
		check.That(t, len(signatureOf(strings.Repeat(unit, 64<<10))) <= maxSignature, "a long text of %q", unit)
	}
}

func FuzzSignature(f *testing.F) {
	f.Add(strings.Repeat("é", 300))
	f.Add("a \"b")
	f.Fuzz(func(t *testing.T, text string) {
		got := signatureOf(text)
		check.That(t, len(got) <= 200 && utf8.ValidString(got) && !strings.ContainsAny(got, "\n\r\t"), "%q gives %q", text, got)
	})
}
