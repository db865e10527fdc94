package recipient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve is a server, and a directory on it.
func serve(t *testing.T) (*natsrun.Server, *recipient.Directory) {
	t.Helper()
	srv := natstest.Server(t)
	d, _ := openOn(t, srv)
	return srv, d
}

// setAddress sets an address of a recipient, or removes it with "".
func setAddress(ctx context.Context, d *recipient.Directory, kind contracts.RecipientType, user, channel, address string) error {
	if address != "" {
		return d.Put(ctx, contracts.Recipient{RecipientType: kind, UserID: user, Addresses: map[string]string{channel: address}})
	}
	_, err := d.Write(ctx, kind, user, recipient.Edit{Body: fmt.Appendf(nil, `{"addresses":{%q:null}}`, channel), Merge: true, Own: true})
	return err
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	d, js := open(t)
	ctx := t.Context()
	const stored = `{"user_id":"ada","recipient_type":"CUSTOMER","addresses":{"email":"ada@example.org"},"time_zone":"Asia/Jerusalem","loyalty":{"points":12345678901234567890}}`
	check.OK(t, check.Err(js.Publish(ctx, "$KV.directory.CUSTOMER.ada", []byte(stored))))
	check.OK(t, setAddress(ctx, d, "CUSTOMER", "ada", "webpush", "one"))
	for _, test := range []struct {
		channel, address string
		want             bool
	}{{"webpush", "another", false}, {"fax", "one", false}, {"webpush", "one", true}, {"webpush", "one", false}, {"email", "", false}, {"fax", "", false}} {
		dropped, err := d.Drop(ctx, "CUSTOMER", "ada", test.channel, test.address)
		check.That(t, err == nil && dropped == test.want, "drop %s %s: %v %v", test.channel, test.address, dropped, err)
	}
	for range 2 {
		check.OK(t, d.OptOut(ctx, "CUSTOMER", "ada", "news", "email"))
	}
	kv := check.Must(js.KeyValue(ctx, contracts.BucketDirectory))(t)
	entry := check.Must(kv.Get(ctx, "CUSTOMER.ada"))(t)
	check.Equal(t, string(entry.Value()),
		`{"addresses":{"email":"ada@example.org"},"loyalty":{"points":12345678901234567890},"opt_out":{"news":["email"]},`+
			`"recipient_type":"CUSTOMER","time_zone":"Asia/Jerusalem","user_id":"ada"}`)
	revision := entry.Revision()
	check.OK(t, setAddress(ctx, d, "CUSTOMER", "ada", "email", "ada@example.org"))
	stream, err := js.Stream(ctx, "KV_"+contracts.BucketDirectory)
	check.That(t, err == nil && stream.CachedInfo().State.LastSeq == revision, "an address that is set already was written again (%v)", err)
	check.OK(t, setAddress(ctx, d, "CUSTOMER", "ada", "email", ""))
	r, _, err := d.Get(ctx, "CUSTOMER", "ada")
	check.That(t, err == nil && len(r.Addresses) == 0, "%+v %v", r, err)
	dropped, err := d.Drop(ctx, "CUSTOMER", "nobody", "email", "x")
	check.That(t, err == nil && !dropped, "of nobody: %v %v", dropped, err)
	_, found, err := d.Get(ctx, "CUSTOMER", "nobody")
	check.That(t, err == nil && !found, "a recipient that is not known was added: %v %v", found, err)
	err = setAddress(ctx, d, "CUSTOMER", "ada", "e mail", "x")
	e, ok := errors.AsType[*recipient.Error](err)
	check.That(t, ok && e.Permanent, "a channel that is none: %v", err)
}

// through is a directory whose requests go through a proxy.
func through(t *testing.T, srv *natsrun.Server) (*recipient.Directory, *natstest.Proxy) {
	t.Helper()
	proxy := natstest.NewProxy(t, srv)
	_, js := natstest.Connect(t, srv, proxy.Through())
	d := recipient.NewDirectory(js, recordtest.Client(t, js))
	return d, proxy
}

// A replica that has received nothing yet says that there is nothing to do. The leader is asked, and the change made.
func TestAStaleReplicaHidesNoChange(t *testing.T) {
	t.Parallel()
	srv, other := serve(t)
	ctx := t.Context()
	d, proxy := through(t, srv)
	check.OK(t, setAddress(ctx, other, "ADMIN", "root", "email", "old"))
	proxy.Change(func(f natstest.Frame) []byte {
		if f.FromClient && f.Subject == "$JS.API.DIRECT.GET.KV_directory" {
			return bytes.ReplaceAll(f.Raw, []byte("ADMIN.root"), []byte("ADMIN.none"))
		}
		return f.Raw
	})
	if _, found, err := d.Get(ctx, "ADMIN", "root"); err != nil || found {
		t.Fatalf("the replica is not stale: %v %v", found, err)
	}
	check.OK(t, setAddress(ctx, d, "ADMIN", "root", "fax", ""))
	if dropped, err := d.Drop(ctx, "ADMIN", "root", "email", "new"); err != nil || dropped {
		t.Errorf("an address that has been replaced was dropped: %v %v", dropped, err)
	}
	if dropped, err := d.Drop(ctx, "ADMIN", "root", "email", "old"); err != nil || !dropped {
		t.Errorf("an address that is there was not dropped: %v %v", dropped, err)
	}
	r, _, err := other.Get(ctx, "ADMIN", "root")
	check.That(t, err == nil && len(r.Addresses) == 0, "%+v %v", r, err)
}

// errUnknown is the error for a recipient that the directory does not have.
var errUnknown = errors.New("nothing is known of the recipient")

// getting returns why a recipient cannot be read.
func getting(ctx context.Context, d *recipient.Directory, kind contracts.RecipientType, user string) error {
	_, found, err := d.Get(ctx, kind, user)
	if err == nil && !found {
		err = errUnknown
	}
	return err
}

// A recipient whose data was erased is in no list, and a click on an old link changes nothing. An address, or another record,
// makes the recipient known again. Nothing but the id is stored in the meantime, for 40 days.
func TestForget(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d, js := open(t)
	kv := check.Must(js.KeyValue(ctx, contracts.BucketDirectory))(t)
	ada := contracts.Recipient{RecipientType: "ADMIN", UserID: "ada", Addresses: map[string]string{"email": "ada@example.org"}}
	check.OK(t, d.Put(ctx, ada))
	check.OK(t, d.Put(ctx, contracts.Recipient{RecipientType: "CUSTOMER", UserID: "ada"}))
	check.OK(t, d.Put(ctx, contracts.Recipient{RecipientType: "ADMIN", UserID: "root"}))
	for _, want := range []bool{true, false} { // again, as after an interruption
		known := check.Must(d.Forget(ctx, "ADMIN", "ada"))(t)
		check.Equal(t, known, want)
	}
	isForgotten := func() {
		t.Helper()
		check.ErrorIs(t, getting(ctx, d, "ADMIN", "ada"), recipient.ErrForgotten)
	}
	isForgotten()
	all := check.Must(ids(d.Resolve(ctx, recipient.Query{Scope: rules.ScopeAll, Type: "ADMIN"})))(t)
	check.Equal(t, all, []string{"ADMIN/root"})
	check.ErrorIs(t, check.Err(kv.Get(ctx, "ADMIN.ada")), jetstream.ErrKeyNotFound)
	stream := check.Must(js.Stream(ctx, "KV_"+contracts.BucketDirectory))(t)
	mark := check.Must(stream.GetLastMsgForSubject(ctx, "$KV.directory.ADMIN.ada"))(t)
	check.Equal(t, string(mark.Data), "")
	check.Equal(t, mark.Header.Get(jetstream.MsgTTLHeader), "3456000s") // 40 days

	check.OK(t, d.OptOut(ctx, "ADMIN", "ada", "news", "email"))
	check.OK(t, check.Err(d.Drop(ctx, "ADMIN", "ada", "email", "ada@example.org")))
	check.ErrorIs(t, setAddress(ctx, d, "ADMIN", "ada", "email", ""), recipient.ErrForgotten)
	isForgotten()

	check.OK(t, setAddress(ctx, d, "ADMIN", "ada", "webpush", "here"))
	r, found, err := d.Get(ctx, "ADMIN", "ada")
	check.OK(t, err)
	check.That(t, found && len(r.Addresses) == 1 && r.Addresses["webpush"] == "here", "with a new address: %+v", r)
	check.OK(t, check.Err(d.Forget(ctx, "ADMIN", "ada")))
	isForgotten()
	check.OK(t, d.Put(ctx, ada))
	check.OK(t, getting(ctx, d, "ADMIN", "ada"))
	check.OK(t, getting(ctx, d, "CUSTOMER", "ada"))
}

// An address that is written between the read and the write of the removal is removed as well.
func TestForgetRemovesWhatComesBetween(t *testing.T) {
	t.Parallel()
	srv, other := serve(t)
	ctx := t.Context()
	check.OK(t, setAddress(ctx, other, "ADMIN", "root", "email", "root@example.org"))
	d, proxy := through(t, srv)
	between := sync.OnceFunc(func() {
		check.ErrorIs(t, setAddress(context.WithoutCancel(ctx), other, "ADMIN", "root", "sms", "34"), nil)
	})
	proxy.Filter(func(f natstest.Frame) natstest.Verdict {
		if f.FromClient && f.Subject == "$KV.directory.ADMIN.root" {
			between()
		}
		return natstest.Relay
	})
	known := check.Must(d.Forget(ctx, "ADMIN", "root"))(t)
	check.Equal(t, known, true)
	proxy.Filter(nil)
	check.ErrorIs(t, getting(ctx, other, "ADMIN", "root"), recipient.ErrForgotten)
}
