package recipient_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

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
// makes the recipient known again. Nothing but the id is stored meanwhile, for 40 days.
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
		check.Equal(t, want, known)
	}
	isForgotten := func() {
		t.Helper()
		check.Is(t, getting(ctx, d, "ADMIN", "ada"), recipient.ErrForgotten)
	}
	isForgotten()
	all := check.Must(ids(d.Resolve(ctx, recipient.Query{Scope: rules.ScopeAll, Type: "ADMIN"})))(t)
	check.Equal(t, []string{"ADMIN/root"}, all)
	check.Is(t, check.Err(kv.Get(ctx, "ADMIN.ada")), jetstream.ErrKeyNotFound)
	stream := check.Must(js.Stream(ctx, "KV_"+contracts.BucketDirectory))(t)
	mark := check.Must(stream.GetLastMsgForSubject(ctx, "$KV.directory.ADMIN.ada"))(t)
	check.Equal(t, "", string(mark.Data))
	check.Equal(t, "3456000s", mark.Header.Get(jetstream.MsgTTLHeader)) // 40 days

	check.OK(t, d.OptOut(ctx, "ADMIN", "ada", "news", "email"))
	check.OK(t, check.Err(d.Drop(ctx, "ADMIN", "ada", "email", "ada@example.org")))
	check.Is(t, setAddress(ctx, d, "ADMIN", "ada", "email", ""), recipient.ErrForgotten)
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
		check.Is(t, setAddress(context.WithoutCancel(ctx), other, "ADMIN", "root", "sms", "34"), nil)
	})
	proxy.Filter(func(f natstest.Frame) natstest.Verdict {
		if f.FromClient && f.Subject == "$KV.directory.ADMIN.root" {
			between()
		}
		return natstest.Relay
	})
	known := check.Must(d.Forget(ctx, "ADMIN", "root"))(t)
	check.Equal(t, true, known)
	proxy.Filter(nil)
	check.Is(t, getting(ctx, other, "ADMIN", "root"), recipient.ErrForgotten)
}
