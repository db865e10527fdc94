package jsapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// server answers requests in order, and the last answer again.
type server struct {
	answers []string
	asked   []*nats.Msg
}

func (s *server) Request(_ context.Context, m *nats.Msg, _ time.Duration) (*nats.Msg, error) {
	s.asked = append(s.asked, m)
	if len(s.answers) == 0 {
		return nil, nats.ErrTimeout
	}
	return &nats.Msg{Data: []byte(s.answers[min(len(s.asked), len(s.answers))-1])}, nil
}

func failure(code jetstream.ErrorCode) string {
	return fmt.Sprintf(`{"error":{"code":400,"err_code":%d}}`, code)
}

const message = `{"message":{"subject":"a","seq":7}}`

func TestDeleteTellsAMessageThatIsGoneFromAFailure(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers []string
		asked   int
		ok      bool
	}{
		"removed":                     {[]string{`{"success":true}`}, 1, true},
		"not there":                   {[]string{failure(10043), failure(10037)}, 2, true},
		"the store has no such":       {[]string{failure(10057), failure(10037)}, 2, true},
		"deletion is not permitted":   {[]string{failure(10057), message}, 2, false},
		"nobody knows if it is there": {[]string{failure(10057), failure(10008)}, 2, false},
		"no stream":                   {[]string{failure(10059)}, 1, false},
		"no answer":                   {nil, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{answers: tt.answers}
			removed, err := jsapi.Client{Prefix: "$JS.API.", Sender: s}.Delete(t.Context(), "S", 7)
			check.That(t, (err == nil) == tt.ok && removed == (name == "removed") && len(s.asked) == tt.asked && s.asked[0].Subject == "$JS.API.STREAM.MSG.DELETE.S",
				"%d requests: %v", len(s.asked), err)
		})
	}
}

func TestErrorsAreToldApart(t *testing.T) {
	t.Parallel()
	type class struct{ refused, full, tooLarge, permanent, unknown bool }
	refused := class{refused: true}
	full := class{full: true, permanent: true, unknown: true}
	away := class{unknown: true}
	tooLarge := class{tooLarge: true, permanent: true}
	for _, tt := range []struct {
		err  error
		want class
	}{
		{&jetstream.APIError{Code: 400, ErrorCode: 10071, Description: "wrong last sequence: 7"}, refused},
		{&jetstream.APIError{Code: 400, ErrorCode: 10164, Description: "wrong last sequence"}, refused},
		{&jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum messages per subject exceeded"}, class{refused: true, unknown: true}},
		{&jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}, full},
		{&jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "raft: no leader"}, away},
		{&jetstream.APIError{Code: 400, ErrorCode: 10002}, class{full: true, permanent: true}},
		{&jetstream.APIError{Code: 500, ErrorCode: 10028}, class{full: true, permanent: true}},
		{&jetstream.APIError{Code: 500, ErrorCode: 10047}, class{full: true, permanent: true}},
		{&jetstream.APIError{Code: 400, ErrorCode: 10054}, tooLarge},
		{&jetstream.APIError{Code: 400, ErrorCode: 10097}, tooLarge},
		{&jetstream.APIError{Code: 400, ErrorCode: 10158}, away},
		{&jetstream.APIError{Code: 503, ErrorCode: 10008}, away},
		{&jetstream.APIError{Code: 404, ErrorCode: 10059}, class{permanent: true}},
		{nats.ErrMaxPayload, tooLarge},
		{nats.ErrConnectionClosed, class{permanent: true}},
		{nats.ErrBadHeaderMsg, class{permanent: true}},
		{nats.ErrBadSubject, class{permanent: true}},
		{context.DeadlineExceeded, away},
		{errors.Join(nats.ErrDisconnected), away},
	} {
		err := fmt.Errorf("publish: %w", tt.err)
		got := class{jsapi.IsRefused(err), jsapi.IsFull(err), jsapi.IsTooLarge(err), jsapi.IsPermanent(err), jsapi.IsUnknown(err)}
		check.That(t, got == tt.want, "%#v is %+v, want %+v", tt.err, got, tt.want)
	}
}

var errPeerOffline = &jetstream.APIError{Code: 400, ErrorCode: 10005, Description: "no suitable peers for placement, peer offline"}

func TestTransient(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		nil:                      false,
		context.Canceled:         false,
		context.DeadlineExceeded: true,
		io.EOF:                   false,
		nats.ErrNoResponders:     true,
		nats.ErrTimeout:          true,

		jetstream.ErrJetStreamNotEnabled:           false,
		jetstream.ErrJetStreamNotEnabledForAccount: false,
		jetstream.ErrNoStreamResponse:              true,
		jetstream.ErrStreamNotFound:                false,

		errPeerOffline: true,
		&jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}:         true,
		&jetstream.APIError{Code: 500, ErrorCode: 10009, Description: "JetStream cluster can not handle request"}:         true,
		&jetstream.APIError{Code: 503, ErrorCode: 10023, Description: "insufficient resources"}:                           true,
		&jetstream.APIError{Code: 500, ErrorCode: 10074, Description: "replicas > 1 not supported in non-clustered mode"}: false,
		&jetstream.APIError{Code: 500, ErrorCode: 10118, Description: "stream is offline"}:                                true,
		&jetstream.APIError{Code: 500, ErrorCode: 10194, Description: "stream is offline: unsupported"}:                   false,
	} {
		for _, err := range []error{err, fmt.Errorf("stream S: %w", err)} {
			check.Equal(t, jsapi.IsTransient(err), want, fmt.Sprintf("%v", err))
		}
	}
}

func TestDoTriesUntilTheClusterIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		for name, want := range map[string]error{"done": nil, "an answer": refused} {
			tries := 0
			err := jsapi.Retry(t.Context(), time.Minute, func(context.Context) error {
				tries++
				if tries < 20 {
					return errPeerOffline
				}
				return want
			})
			check.That(t, errors.Is(err, want) && tries == 20, "%s: got %v after %d tries, want %v after 20", name, err, tries, want)
		}
	})
}

func TestDoGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = time.Minute
		for name, try := range map[string]func(context.Context) error{
			"refused": func(context.Context) error { return errPeerOffline },
			"silent": func(ctx context.Context) error {
				<-ctx.Done()
				return errors.Join(errPeerOffline, ctx.Err())
			},
		} {
			begun := time.Now()
			err := jsapi.Retry(t.Context(), wait, try)
			took := time.Since(begun)
			check.That(t, took <= wait+time.Second && took >= wait-2*time.Second, "%s: gave up after %s, want %s", name, took, wait)
			check.That(t, errors.Is(err, jsapi.ErrNotReady) && errors.Is(err, errPeerOffline) && strings.Contains(err.Error(), "nodes are up"),
				"%s: got %v, want ErrNotReady with its cause and a remedy", name, err)
		}
	})
}

// A try that its context interrupts does not hide why.
func TestDoReportsWhyItWasInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	denied := errors.New("denied")
	err := jsapi.Retry(ctx, time.Minute, func(ctx context.Context) error {
		cancel(denied)
		return ctx.Err()
	})
	check.That(t, errors.Is(err, denied), "got %v, want the cause", err)
}

// A request that was lost is repeated soon, and one that takes long has the time.
func TestDoGivesEachTryMoreTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lengths []time.Duration
		err := jsapi.Retry(t.Context(), time.Minute, func(ctx context.Context) error {
			begun := time.Now()
			select {
			case <-ctx.Done():
				lengths = append(lengths, time.Since(begun))
				return ctx.Err()
			case <-time.After(10 * time.Second):
				return nil
			}
		})
		want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}
		diff := cmp.Diff(want, lengths)
		check.That(t, err == nil && diff == "", "%v, -want +got\n%s", err, diff)
	})
}

func TestDoTriesOnceWithoutWaiting(t *testing.T) {
	t.Parallel()
	tries := 0
	err := jsapi.Retry(t.Context(), 0, func(context.Context) error {
		tries++
		return errPeerOffline
	})
	check.That(t, tries == 1 && errors.Is(err, jsapi.ErrNotReady), "got %v after %d tries, want ErrNotReady after one", err, tries)
}
