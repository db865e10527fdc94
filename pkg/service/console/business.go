package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/pkg/service/audit"
)

// ask asks a service over NATS, for the caller of a page. One round trip to the service.
func (r *request) ask(ctx context.Context, subject string, question, into any) error {
	service, _, _ := strings.Cut(subject, ".")
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("console: encode a question: %w", err)
	}
	msg := nats.NewMsg(subject)
	msg.Data = body
	if name := access.From(ctx).Name; name != "" {
		msg.Header.Set(audit.ActorHeader, name)
	}
	denied.From(ctx).Sent(subject)
	reply, err := r.c.cfg.Conn.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fail(http.StatusServiceUnavailable, "No %s answers. Look whether one runs, and whether this console may ask it.", service)
	case err != nil:
		return fmt.Errorf("console: ask the %s: %w", service, err)
	}
	if code := reply.Header.Get(micro.ErrorCodeHeader); code != "" {
		status, err := strconv.Atoi(code)
		if err != nil || status < http.StatusBadRequest || status >= http.StatusInternalServerError {
			status = http.StatusBadGateway
		}
		var more struct {
			Errors []contracts.FieldError `json:"errors"`
		}
		_ = json.Unmarshal(reply.Data, &more) // most have none
		said := []string{fmt.Sprintf("The %s says: %s", service, reply.Header.Get(micro.ErrorHeader))}
		for _, f := range more.Errors {
			said = append(said, fmt.Sprintf("%s %s", strings.Trim(f.Path, "?/"), f.Problem))
		}
		return fail(status, "%s.", strings.TrimSuffix(strings.Join(said, "; "), "."))
	}
	if err := json.Unmarshal(reply.Data, into); err != nil {
		return fmt.Errorf("console: answer of the %s: %w", service, err)
	}
	return nil
}

// required returns a value of a form.
func (r *request) required(name string) (string, error) {
	value := r.PostForm.Get(name)
	if value == "" || len(value) > contracts.MaxID {
		return "", fail(http.StatusBadRequest, "The form has no %s. Nothing was done.", name)
	}
	return value, nil
}
