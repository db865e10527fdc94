package natstest

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Permissions compares the permissions of a user, in deploy/nats/accounts.conf, with the user's messages. A line is not needed when the
// other lines permit every message.
//
//	may := natstest.NewPermissions(t, srv, "enricher")
//	nc, _ := natstest.Connect(t, srv, users.As("enricher"), may.Through())
//	work(nc)
//	may.CheckNeeded(t)
type Permissions struct {
	proxy *Proxy
	user  string

	mu   sync.Mutex
	used map[string]map[string]bool // "publish" or "subscribe", and the subjects
}

// NewPermissions returns the Permissions of a user of srv.
func NewPermissions(t testing.TB, srv *natsrun.Server, user string) *Permissions {
	t.Helper()
	p := &Permissions{proxy: NewProxy(t, srv), user: user, used: map[string]map[string]bool{"publish": {}, "subscribe": {}}}
	p.proxy.uses = p.note
	return p
}

// Through returns the option with which a connection's messages count.
func (p *Permissions) Through() nats.Option { return p.proxy.Through() }

func (p *Permissions) note(line []byte) {
	line, _, _ = bytes.Cut(line, []byte("\r\n"))
	words := strings.Fields(string(line))
	if len(words) < 2 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch words[0] {
	case "PUB", "HPUB":
		p.used["publish"][words[1]] = true
	case "SUB":
		p.used["subscribe"][words[1]] = true
	}
}

var (
	listed    = regexp.MustCompile(`^\s*"([^"]+)"`)
	permitted = regexp.MustCompile(`^\s*(publish|subscribe): \[`)
)

// CheckNeeded fails the test for each line of the user's permissions that no message so far needed. rare lists the exceptions, lines that
// only rare events need, as written in the file.
func (p *Permissions) CheckNeeded(t testing.TB, rare ...string) {
	t.Helper()
	text := check.Must(deploy.Text("accounts.conf"))(t)
	_, text, found := strings.Cut(text, "nkey: $NATS_NKEY_"+strings.ToUpper(p.user)+", permissions: {")
	check.Require(t, found, "accounts.conf has no permissions of %s", p.user)
	text, rest, _ := strings.Cut(text, "allow_responses: ")
	lists := map[string][]string{}
	kind := ""
	for line := range strings.Lines(text) {
		if m := permitted.FindStringSubmatch(line); m != nil {
			kind = m[1]
		}
		if m := listed.FindStringSubmatch(line); m != nil {
			lists[kind] = append(lists[kind], m[1])
		}
	}
	check.Require(t, rest != "" && len(lists["publish"]) != 0 && len(lists["subscribe"]) != 0,
		"the permissions of %s are written in another way", p.user)
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, patterns := range lists {
		for i, pattern := range patterns {
			others := slices.Concat(patterns[:i], patterns[i+1:])
			check.That(t, slices.Contains(rare, pattern) || isNeeded(pattern, others, p.used[kind]),
				"%s did nothing that needs the permission to %s to %q", p.user, kind, pattern)
		}
	}
	all := slices.Concat(lists["publish"], lists["subscribe"])
	for _, pattern := range rare {
		check.That(t, slices.Contains(all, pattern), "%s has no permission for %q", p.user, pattern)
	}
}

var imported = regexp.MustCompile(`\{ service: \{ account: \w+, subject: "([^"]+)" \}(?:, to: "([^"]+)")? \}`)

// CheckImports is CheckNeeded for a user with permission for the imports of its account: it fails the test for each import that no message
// so far needed.
func (p *Permissions) CheckImports(t testing.TB, account string, rare ...string) {
	t.Helper()
	text := check.Must(deploy.Text("accounts.conf"))(t)
	_, block, _ := strings.Cut(text, "\n  "+account+" {")
	block, _, _ = strings.Cut(block, "\n  }")
	var patterns []string
	for _, m := range imported.FindAllStringSubmatch(block, -1) {
		if to := cmp.Or(m[2], m[1]); !slices.Contains(patterns, to) {
			patterns = append(patterns, to)
		}
	}
	check.Require(t, len(patterns) > 0, "accounts.conf has no imports of %s", account)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, pattern := range patterns {
		needed := isNeeded(pattern, slices.Concat(patterns[:i], patterns[i+1:]), p.used["publish"])
		check.That(t, needed != slices.Contains(rare, pattern), "%s needs the import of %q: %t", p.user, pattern, needed)
	}
}

// isNeeded reports whether pattern permits a subject that the others do not.
func isNeeded(pattern string, others []string, subjects map[string]bool) bool {
	for used := range subjects {
		covers := func(pattern string) bool { return subject.Covers(pattern, used) }
		if covers(pattern) && !slices.ContainsFunc(others, covers) {
			return true
		}
	}
	return false
}

// Users are fresh keys for the users of deploy/nats/accounts.conf. With these users, a server or a cluster enforces the permissions of
// production:
//
//	users := natstest.NewUsers(t)
//	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
//	nc, _ := natstest.Connect(t, srv, users.As("admin"))
//	js := natstest.InAccount(t, nc, "ENRICHER")
type Users struct {
	// Public has the public keys by user name, for natsrun.Config.Users.
	Public map[string]string

	pairs map[string]nkeys.KeyPair
}

// NewUsers makes a key pair for each user.
func NewUsers(t testing.TB) *Users {
	t.Helper()
	u := &Users{Public: make(map[string]string), pairs: make(map[string]nkeys.KeyPair)}
	for _, name := range []string{
		"admin", "backup_enricher", "backup_importer", "backup_notifier", "console", "enricher", "importer", "notifier", "publisher", "sys",
	} {
		pair, err := nkeys.CreateUser()
		check.Require(t, err == nil, "make a key for %s: %v", name, err)
		public, err := pair.PublicKey()
		check.Require(t, err == nil, "public key of %s: %v", name, err)
		u.Public[name], u.pairs[name] = public, pair
	}
	return u
}

// As returns the option that authenticates a client as the user, with the user's own inbox "_INBOX_<name>".
func (u *Users) As(name string) nats.Option {
	return func(o *nats.Options) error {
		pair := u.pairs[name]
		if pair == nil {
			return errors.New("natstest: no user " + name)
		}
		return errors.Join(
			nats.Nkey(u.Public[name], pair.Sign)(o),
			nats.CustomInboxPrefix("_INBOX_"+name)(o),
		)
	}
}

// SeedFile returns the path of a file with the seed of the user, for NATS_NKEY. The file is removed at the end of the test.
func (u *Users) SeedFile(t testing.TB, name string) string {
	t.Helper()
	seed, err := u.pairs[name].Seed()
	check.Require(t, err == nil, "seed of %s: %v", name, err)
	file := filepath.Join(t.TempDir(), name+".nk")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatalf("seed of %s: %v", name, err)
	}
	return file
}

// InAccount returns the JetStream context with which the admin, connected by nc, works on the streams of a service's
// account: "ENRICHER", "IMPORTER" or "NOTIFIER". Watchers of a bucket do not work, because the server pushes their
// messages inside that account.
func InAccount(t testing.TB, nc *nats.Conn, account string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.NewWithAPIPrefix(nc, "$JS."+account+".API", jetstream.WithDefaultTimeout(patience))
	check.Require(t, err == nil, "JetStream context of %s: %v", account, err)
	return js
}

// Restrict returns a mutation for Server and Bubble: a client that connects with [Restricted] has the permissions, and a client without a
// user may do everything.
func Restrict(permissions server.Permissions) func(*natsrun.Config) {
	return func(c *natsrun.Config) {
		natsrun.ChangeOptions(c, func(o *server.Options) {
			o.NoAuthUser = "admin"
			o.Users = []*server.User{
				{Username: o.NoAuthUser, Password: "x"},
				{Username: "restricted", Password: "x", Permissions: &permissions},
			}
		})
	}
}

// Restricted returns the option that connects a client with the permissions of Restrict.
func Restricted() nats.Option { return nats.UserInfo("restricted", "x") }
