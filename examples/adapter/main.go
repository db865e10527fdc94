// Command adapter sends messages of a notifier's gateways to phones and to Slack: by FCM HTTP v1, by APNs with provider tokens, and
// by incoming webhooks. See README.md.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// message is the body of a notifier's call, see gateway.PushBody.
type message struct {
	Data  json.RawMessage `json:"data"`
	ID    string          `json:"id"`
	Text  string          `json:"text"`
	Title string          `json:"title"`
	To    string          `json:"to"`
	URL   string          `json:"url"`
}

// errGone is returned for an address that does not exist any more.
var errGone = errors.New("the address is gone")

// refusal is an answer of the remote service that is not a success.
type refusal struct {
	status     int
	reason     string // no secret and no address
	retryAfter string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s", r.status, r.reason) }

// sender sends a message to a remote service, and returns the remote service's id of the message.
type sender interface {
	send(ctx context.Context, m message) (id string, err error)
}

// adapter has the parts that all routes share.
type adapter struct {
	client *http.Client
	logger *slog.Logger
	token  string
}

// maxBody bounds the body of a message, and of an answer, in bytes.
const maxBody = 64 << 10

// serve answers a notifier. By the status the notifier tries again (401, 429 and 5xx), does not (422), or removes the address (410 with
// the address).
func (a *adapter) serve(name string, to sender) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+a.token {
			answer(w, http.StatusUnauthorized, map[string]string{"error": "the token is another one"})
			return
		}
		var m message
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&m); err != nil || m.To == "" || m.ID == "" {
			answer(w, http.StatusUnprocessableEntity, map[string]string{"error": "want a message with to and id"})
			return
		}
		id, err := to.send(r.Context(), m)
		refused := &refusal{status: http.StatusBadGateway, reason: "no answer"}
		switch {
		case err == nil:
			answer(w, http.StatusOK, map[string]string{"id": cmp.Or(id, m.ID)})
			return
		case errors.Is(err, errGone):
			answer(w, http.StatusGone, map[string]string{"gone": m.To})
		case errors.As(err, &refused):
			if refused.retryAfter != "" {
				w.Header().Set("Retry-After", refused.retryAfter)
			}
			answer(w, refused.answer(), map[string]string{"error": refused.reason})
		default: // the text of the error may have an address
			answer(w, refused.status, map[string]string{"error": refused.reason})
			err = refused
		}
		a.logger.WarnContext(r.Context(), "adapter: not sent", "channel", name, "id", m.ID, "error", err)
	}
}

// answer returns the status for a notifier. A problem with our credentials may be mended by the next attempt, a problem with the message
// is not.
func (r *refusal) answer() int {
	switch {
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden, r.status == http.StatusTooManyRequests:
		return r.status
	case r.status == http.StatusServiceUnavailable:
		return r.status // not taken
	case r.status >= http.StatusInternalServerError:
		return http.StatusBadGateway // perhaps taken
	}
	return http.StatusUnprocessableEntity
}

func answer(w http.ResponseWriter, status int, body map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	data, err := json.Marshal(body)
	if err == nil {
		w.Write(data)
	}
}

// routes returns the routes that the environment configures. ctx ends the fetching of access tokens.
func routes(ctx context.Context, getenv func(string) string, a *adapter) (*http.ServeMux, error) {
	mux := http.NewServeMux()
	a.token = getenv("ADAPTER_TOKEN")
	var errs []error
	if a.token == "" {
		errs = append(errs, errors.New("ADAPTER_TOKEN is missing: want the value of NOTIFIER_GATEWAYS_TOKEN"))
	}
	if file := getenv("FCM_CREDENTIALS"); file != "" {
		f, err := newFCM(ctx, file, cmp.Or(getenv("FCM_URL"), "https://fcm.googleapis.com"), a.client)
		errs = append(errs, err)
		mux.Handle("POST /fcm", a.serve("fcm", f))
	}
	if file := getenv("APNS_KEY"); file != "" {
		p, err := newAPNs(file, getenv("APNS_KEY_ID"), getenv("APNS_TEAM_ID"), getenv("APNS_TOPIC"),
			cmp.Or(getenv("APNS_URL"), "https://api.push.apple.com"), a.client)
		errs = append(errs, err)
		mux.Handle("POST /apns", a.serve("apns", p))
	}
	prefix := cmp.Or(getenv("SLACK_PREFIX"), "https://hooks.slack.com/services/")
	mux.Handle("POST /slack", a.serve("slack", &slack{client: a.client, prefix: prefix}))
	return mux, errors.Join(errs...)
}

func run(ctx context.Context, logger *slog.Logger) error {
	mux, err := routes(ctx, os.Getenv, &adapter{client: &http.Client{Timeout: 10 * time.Second}, logger: logger})
	if err != nil {
		return err
	}
	srv := &http.Server{Addr: cmp.Or(os.Getenv("ADAPTER_LISTEN"), "127.0.0.1:8080"), Handler: mux, ReadTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		stopped <- srv.Shutdown(ctx)
	}()
	logger.InfoContext(ctx, "adapter: listening", "address", srv.Addr)
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("adapter: %w", err)
	}
	return <-stopped
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := run(ctx, logger)
	stop()
	if err != nil {
		logger.Error("adapter: ended", "error", err)
		os.Exit(1)
	}
}
