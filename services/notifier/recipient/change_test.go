package recipient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// newServerAndDirectory is a server, and a directory on it.
func newServerAndDirectory(t *testing.T) (*natsrun.Server, *recipient.Directory) {
	t.Helper()
	srv := natstest.Server(t)
	d, _ := newDirectoryOn(t, srv)
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
	d, js := newDirectory(t)
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

// proxiedDirectory is a directory whose requests go proxiedDirectory a proxy.
func proxiedDirectory(t *testing.T, srv *natsrun.Server) (*recipient.Directory, *natstest.Proxy) {
	t.Helper()
	proxy := natstest.NewProxy(t, srv)
	_, js := natstest.Connect(t, srv, proxy.Through())
	return recipient.NewDirectory(js, recordtest.Client(t, js)), proxy
}

// A replica that has received nothing yet says that there is nothing to do. The leader is asked, and the change made.
func TestAStaleReplicaHidesNoChange(t *testing.T) {
	t.Parallel()
	srv, other := newServerAndDirectory(t)
	ctx := t.Context()
	d, proxy := proxiedDirectory(t, srv)
	check.OK(t, setAddress(ctx, other, "ADMIN", "root", "email", "old"))
	proxy.Change(func(f natstest.Frame) []byte {
		if f.FromClient && f.Subject == "$JS.API.DIRECT.GET.KV_directory" {
			return bytes.ReplaceAll(f.Raw, []byte("ADMIN.root"), []byte("ADMIN.none"))
		}
		return f.Raw
	})
	_, found, err := d.Get(ctx, "ADMIN", "root")
	check.Require(t, err == nil && !found, "the replica is not stale: %v %v", found, err)
	check.OK(t, setAddress(ctx, d, "ADMIN", "root", "fax", ""))
	check.Equal(t, check.Must(d.Drop(ctx, "ADMIN", "root", "email", "new"))(t), false, "an address that has been replaced was dropped")
	check.Equal(t, check.Must(d.Drop(ctx, "ADMIN", "root", "email", "old"))(t), true, "an address that is there was dropped")
	r, _, err := other.Get(ctx, "ADMIN", "root")
	check.That(t, err == nil && len(r.Addresses) == 0, "%+v %v", r, err)
}

// errUnknown is the error for a recipient that the directory does not have.
var errUnknown = errors.New("nothing is known of the recipient")

// readError returns why a recipient cannot be read.
func readError(ctx context.Context, d *recipient.Directory, kind contracts.RecipientType, user string) error {
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
	d, js := newDirectory(t)
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
		check.ErrorIs(t, readError(ctx, d, "ADMIN", "ada"), recipient.ErrForgotten)
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
	check.OK(t, readError(ctx, d, "ADMIN", "ada"))
	check.OK(t, readError(ctx, d, "CUSTOMER", "ada"))
}

// An address that is written between the read and the write of the removal is removed as well.
func TestForgetRemovesWhatComesBetween(t *testing.T) {
	t.Parallel()
	srv, other := newServerAndDirectory(t)
	ctx := t.Context()
	check.OK(t, setAddress(ctx, other, "ADMIN", "root", "email", "root@example.org"))
	d, proxy := proxiedDirectory(t, srv)
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
	check.ErrorIs(t, readError(ctx, other, "ADMIN", "root"), recipient.ErrForgotten)
}

func editAda(t *testing.T, d *recipient.Directory, e recipient.Edit) recipient.Document {
	t.Helper()
	return check.Must(d.Write(t.Context(), "CUSTOMER", "ada", e))(t)
}

// Of all edits of one revision at most one is made, of edits of any revision all, as are drops of addresses, and no write takes an
// opt-out back that is stored at the same time.
func TestWritersAtATime(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t)
	gone := map[string]string{}
	for i := range 16 {
		gone[fmt.Sprint("d", i)] = "gone"
	}
	check.OK(t, d.Put(t.Context(), contracts.Recipient{RecipientType: "CUSTOMER", UserID: "ada", Addresses: gone}))
	was := check.Must(d.Read(t.Context(), "CUSTOMER", "ada"))(t)
	var wg sync.WaitGroup
	var won atomic.Int32
	edit := func(format string, i int) recipient.Edit {
		return recipient.Edit{Body: json.RawMessage(fmt.Sprintf(format, i)), Merge: true}
	}
	for i := range 16 {
		wg.Go(func() { check.OK(t, d.OptOut(t.Context(), "CUSTOMER", "ada", fmt.Sprintf("c%d", i), "email")) })
		wg.Go(func() { editAda(t, d, edit(`{"n%d":1}`, i)) })
		wg.Go(func() {
			dropped, err := d.Drop(t.Context(), "CUSTOMER", "ada", fmt.Sprint("d", i), "gone")
			check.That(t, dropped && err == nil, "dropped %d: %t, %v", i, dropped, err)
		})
		wg.Go(func() {
			e := edit(`{"m%d":1}`, i)
			e.Revision = &was.Revision
			_, err := d.Write(t.Context(), "CUSTOMER", "ada", e)
			if err == nil {
				won.Add(1)
			} else {
				check.ErrorIs(t, err, recipient.ErrChanged)
			}
		})
		wg.Go(func() {
			entry, err := recipient.ParseEntry([]byte(fmt.Sprintf(`{"recipient_type":"CUSTOMER","user_id":"ada","addresses":{"c%d":"x"},"last":%d}`, i, i)))
			check.OK(t, err)
			check.OK(t, d.PutMany(t.Context(), []recipient.Entry{entry})[0].Err)
		})
	}
	wg.Wait()
	is := check.Must(d.Read(t.Context(), "CUSTOMER", "ada"))(t)
	for i := range 16 {
		check.Contains(t, string(is.Body), fmt.Sprintf(`"n%d":1`, i))
	}
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.That(t, err == nil && len(r.OptOut) == 16 && len(r.Addresses) == 16 && won.Load() <= 1, "%+v, %d edits of one revision: %v", r,
		won.Load(), err)
}

// Reads that begin while one is under way share the next round trip, and each gets its own recipient: also when the caller gives up that
// reads for the others, and beside a recipient that there cannot be.
func TestReadsShareRoundTrips(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const people = 100
		d, _ := newDirectoryOn(t, srv)
		for i := range people {
			check.OK(t, setAddress(t.Context(), d, "ADMIN", fmt.Sprint("u", i), "fax", fmt.Sprint(i)))
		}
		d, proxy := proxiedDirectory(t, srv)
		var all sync.WaitGroup
		get := func(ctx context.Context, user, fax string, want error) {
			all.Go(func() {
				r, _, err := d.Get(ctx, "ADMIN", user)
				check.ErrorIs(t, err, want)
				check.That(t, r.Addresses["fax"] == fax, "%.10s: %+v, %v", user, r, err)
			})
		}
		lose := func(which ...int) (requests *int) {
			requests = new(int)
			proxy.Filter(func(f natstest.Frame) natstest.Verdict {
				if !f.FromClient || !strings.HasPrefix(f.Subject, "$JS.API.DIRECT.GET.") {
					return natstest.Relay
				}
				*requests++
				if slices.Contains(which, *requests) {
					return natstest.Lose
				}
				return natstest.Relay
			})
			return requests
		}

		requests := lose(1)
		get(t.Context(), "u0", "0", nil)
		synctest.Wait()
		for i := range people {
			get(t.Context(), fmt.Sprint("u", i), fmt.Sprint(i), nil)
		}
		all.Wait()
		check.Equal(t, *requests, 3, "requests, of which the first was lost and sent again")

		lose(1)
		get(t.Context(), "u0", "0", nil)
		synctest.Wait()
		get(t.Context(), strings.Repeat("u", 1000), "", contracts.ErrTokenTooLong)
		get(t.Context(), "u1", "1", nil)
		all.Wait()

		lose(1, 3) // and so is the request of the caller that reads for all
		crowd, leave := context.WithCancel(t.Context())
		get(t.Context(), "u0", "0", nil)
		synctest.Wait()
		for i := range people {
			get(crowd, fmt.Sprint("u", i), "", context.Canceled)
		}
		get(t.Context(), "u2", "2", nil)
		natstest.Pass(600 * time.Millisecond) // fake time: the request of the first is sent again, and answered
		synctest.Wait()
		leave()
		all.Wait()
	})
}

// What each write of a document keeps, and what it removes.
func TestWhatAWriteKeeps(t *testing.T) {
	t.Parallel()
	const first = `{"locale":"he","vip":true,"addresses":{"email":"a@x.example"},"opt_out":{"news":["email"]},"mute":{"*":"2030-01-01T00:00:00Z"}}`
	const ids = `"recipient_type":"CUSTOMER","user_id":"ada"`
	for name, test := range map[string]struct {
		edit recipient.Edit
		want string // or the error
		err  error
	}{
		"replaced":                {recipient.Edit{Body: json.RawMessage(`{"locale":"fr"}`)}, `{"locale":"fr","opt_out":{"news":["email"]},` + ids + `}`, nil},
		"merged":                  {recipient.Edit{Body: json.RawMessage(`{"locale":null,"addresses":{"email":null},"mute":{"*":null}}`), Merge: true}, `{"opt_out":{"news":["email"]},` + ids + `,"vip":true}`, nil},
		"an opt-out by another":   {recipient.Edit{Body: json.RawMessage(`{"opt_out":{"ads":["sms"]}}`)}, "", recipient.ErrKept},
		"a wider opt-out":         {recipient.Edit{Body: json.RawMessage(`{"opt_out":{"news":null,"*":["*"]}}`), Merge: true}, `{"addresses":{"email":"a@x.example"},"locale":"he","mute":{"*":"2030-01-01T00:00:00Z"},"opt_out":{"*":["*"]},` + ids + `,"vip":true}`, nil},
		"an opt-out of one's own": {recipient.Edit{Body: json.RawMessage(`{"opt_out":null,"mute":null,"addresses":null}`), Merge: true, Own: true}, `{"locale":"he",` + ids + `,"vip":true}`, nil},
		"an address of one's own": {recipient.Edit{Body: json.RawMessage(`{"addresses":{"email":"b@x.example"},"endpoints":{"email":{"main":{"unverified":false}}},"mute":null}`), Merge: true, Own: true}, `{"addresses":{"email":"b@x.example"},"endpoints":{"email":{"main":{"unverified":true}}},"locale":"he","opt_out":{"news":["email"]},` + ids + `,"vip":true}`, nil},
		"what is not one's own":   {recipient.Edit{Body: json.RawMessage(`{"vip":false}`), Merge: true, Own: true}, "", contracts.ErrInvalid},
		"memberships":             {recipient.Edit{Body: json.RawMessage(`{"memberships":[]}`), Merge: true}, "", contracts.ErrInvalid},
		"another's id":            {recipient.Edit{Body: json.RawMessage(`{"user_id":"eve"}`), Merge: true}, "", contracts.ErrInvalid},
		"a misspelt setting":      {recipient.Edit{Body: json.RawMessage(`{"endpoints":{"webhook":{"a":{"address":"x","disable":true}}}}`), Merge: true}, "", contracts.ErrInvalid},
		"a zone that is none":     {recipient.Edit{Body: json.RawMessage(`{"time_zone":"Mars"}`), Merge: true}, "", contracts.ErrInvalid},
		"too much":                {recipient.Edit{Body: json.RawMessage(`{"x":"` + strings.Repeat("x", recipient.MaxDocument-10) + `"}`), Merge: true}, "", recipient.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _ := newDirectory(t)
			was := editAda(t, d, recipient.Edit{Body: json.RawMessage(first)})
			is, err := d.Write(t.Context(), "CUSTOMER", "ada", test.edit)
			check.ErrorIs(t, err, test.err)
			read := check.Must(d.Read(t.Context(), "CUSTOMER", "ada"))(t)
			if test.err != nil {
				check.Equal(t, read, was)
				return
			}
			check.Equal(t, string(is.Body), test.want, "answer")
			check.Equal(t, string(read.Body), test.want, "record")
			check.Equal(t, is.Revision, read.Revision, "revision")
		})
	}
}

// A recipient who is not in the directory and has preferences is on no list until a program puts the recipient in. What the recipient has
// chosen stays.
func TestPreferencesAddNobody(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t)
	listed := func() (n int) {
		t.Helper()
		return len(check.Must(ids(d.Resolve(t.Context(), recipient.Query{Scope: rules.ScopeAll, Type: "CUSTOMER"})))(t))
	}
	check.OK(t, d.OptOut(t.Context(), "CUSTOMER", "ada", "news", "email"))
	check.OK(t, check.Err(d.Write(t.Context(), "CUSTOMER", "ada", recipient.Edit{Body: json.RawMessage(`{"mute":{"x":"2030-01-01T00:00:00Z"}}`), Merge: true, Own: true})))
	check.OK(t, d.Prefer(t.Context(), contracts.Recipient{RecipientType: "CUSTOMER", UserID: "eve", Digest: map[string]string{"*": "1h"}}, 0))
	check.Equal(t, listed(), 0, "listed")
	lines, _, err := d.Page(t.Context(), "", 0, 10)
	check.That(t, err == nil && len(lines) == 2 && strings.Contains(string(lines[0]), `"unlisted":true`), "%s %v", lines, err)
	entry := check.Must(recipient.ParseEntry(lines[0]))(t)
	check.OK(t, d.PutMany(t.Context(), []recipient.Entry{entry})[0].Err)
	check.Equal(t, listed(), 0, "listed")
	put(t, d, "CUSTOMER", "ada")
	check.Equal(t, listed(), 1, "listed")
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.That(t, err == nil && len(r.OptOut) == 1 && len(r.Mute) == 1, "%+v %v", r, err)
	check.ErrorIs(t, d.Prefer(t.Context(), contracts.Recipient{RecipientType: "CUSTOMER", UserID: "eve"}, 0), recipient.ErrChanged)
}
