package recipient_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	d, js := open(t)
	ctx := t.Context()
	const stored = `{"user_id":"ada","recipient_type":"CUSTOMER","addresses":{"email":"ada@example.org"},"time_zone":"Asia/Jerusalem","loyalty":{"points":12345678901234567890}}`
	if _, err := js.Publish(ctx, "$KV.directory.CUSTOMER.ada", []byte(stored)); err != nil {
		t.Fatal(err)
	}
	if err := d.SetAddress(ctx, "CUSTOMER", "ada", "webpush", "one"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		channel, address string
		want             bool
	}{{"webpush", "another", false}, {"fax", "one", false}, {"webpush", "one", true}, {"webpush", "one", false}, {"email", "", false}, {"fax", "", false}} {
		if dropped, err := d.Drop(ctx, "CUSTOMER", "ada", test.channel, test.address); err != nil || dropped != test.want {
			t.Errorf("drop %s %s: %v %v", test.channel, test.address, dropped, err)
		}
	}
	for range 2 {
		if err := d.OptOut(ctx, "CUSTOMER", "ada", "news", "email"); err != nil {
			t.Fatal(err)
		}
	}
	kv, err := js.KeyValue(ctx, contracts.BucketDirectory)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(ctx, "CUSTOMER.ada")
	want := `{"addresses":{"email":"ada@example.org"},"loyalty":{"points":12345678901234567890},"opt_out":{"news":["email"]},` +
		`"recipient_type":"CUSTOMER","time_zone":"Asia/Jerusalem","user_id":"ada"}`
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(entry.Value())); diff != "" {
		t.Error(diff)
	}
	revision := entry.Revision()
	if err := d.SetAddress(ctx, "CUSTOMER", "ada", "email", "ada@example.org"); err != nil {
		t.Fatal(err)
	}
	if entry, err = kv.Get(ctx, "CUSTOMER.ada"); err != nil || entry.Revision() != revision {
		t.Errorf("what is so already was written again (%v)", err)
	}
	if err := d.SetAddress(ctx, "CUSTOMER", "ada", "email", ""); err != nil {
		t.Fatal(err)
	}
	if r, _, err := d.Get(ctx, "CUSTOMER", "ada"); err != nil || len(r.Addresses) != 0 {
		t.Errorf("%+v %v", r, err)
	}
	if dropped, err := d.Drop(ctx, "CUSTOMER", "nobody", "email", "x"); err != nil || dropped {
		t.Errorf("of nobody: %v %v", dropped, err)
	}
	if _, found, err := d.Get(ctx, "CUSTOMER", "nobody"); err != nil || found {
		t.Errorf("who is not known has come to be: %v %v", found, err)
	}
	err = d.SetAddress(ctx, "CUSTOMER", "ada", "e mail", "x")
	if e, ok := errors.AsType[*recipient.Error](err); !ok || !e.Permanent {
		t.Errorf("a channel that is none: %v", err)
	}
}

// Many who change one record at a time lose nothing of each other's.
func TestChangesDoNotOverwriteEachOther(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	ctx := t.Context()
	const n = 24
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-begin
			if err := d.SetAddress(ctx, "ADMIN", "root", fmt.Sprint("c", i), fmt.Sprint("at ", i)); err != nil {
				t.Error(err)
			}
			if err := d.OptOut(ctx, "ADMIN", "root", "news", fmt.Sprint("c", i)); err != nil {
				t.Error(err)
			}
			if i%2 == 0 {
				if dropped, err := d.Drop(ctx, "ADMIN", "root", fmt.Sprint("c", i), fmt.Sprint("at ", i)); err != nil || !dropped {
					t.Errorf("%v %v", dropped, err)
				}
			}
		})
	}
	close(begin)
	all.Wait()
	r, _, err := d.Get(ctx, "ADMIN", "root")
	if err != nil || len(r.Addresses) != n/2 || len(slices.Compact(slices.Sorted(slices.Values(r.OptOut["news"])))) != n {
		t.Errorf("%+v %v", r, err)
	}
}
