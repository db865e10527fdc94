package natstest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Users are fresh keys for the users of deploy/nats/accounts.conf. A server or a
// cluster with them enforces the permissions of production:
//
//	users := natstest.NewUsers(t)
//	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
//	nc, _ := natstest.Connect(t, srv, users.As("admin"))
//	js := natstest.InAccount(t, nc, "ENRICHER")
type Users struct {
	// Public holds the public keys by user name, as natsrun.Config.Users takes them.
	Public map[string]string

	pairs map[string]nkeys.KeyPair
}

// NewUsers makes a key pair for each user.
func NewUsers(t testing.TB) *Users {
	t.Helper()

	u := &Users{Public: make(map[string]string), pairs: make(map[string]nkeys.KeyPair)}

	for _, name := range []string{"admin", "enricher", "importer", "notifier", "publisher", "sys"} {
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

// SeedFile returns the path of a file with the seed of the user, as NATS_NKEY names one. It is removed with the test.
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

// Restrict is a mutation for Server and Bubble: a client that connects with [Restricted] has the permissions, and one
// without a user may do everything.
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

// Restricted connects a client with the permissions of Restrict.
func Restricted() nats.Option { return nats.UserInfo("restricted", "x") }
