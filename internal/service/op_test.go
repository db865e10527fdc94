package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

type order struct {
	Limit int       `json:"limit,omitempty"   jsonschema:"minimum=1,maximum=10" query:"limit"`
	Name  string    `json:"name"              path:"name"`
	Once  string    `header:"Idempotency-Key" json:"-"`
	Since time.Time `json:"since,omitzero"    query:"since"`
	Text  string    `json:"text"`
}

func (o order) Validate() error {
	var wrong contracts.Mistakes
	wrong.Add(o.Text == "", "/text", "is required")
	return wrong.In("order")
}

type sold struct{ order }

func (s sold) HTTP(header http.Header) (status int, body any) {
	header.Set("Location", "/v1/orders/"+s.Name)
	return http.StatusCreated, s
}

// An operation has one request over HTTP and NATS, and every mistake of it is reported at once.
func TestOperation(t *testing.T) {
	t.Parallel()
	op := service.NewOp(service.Op{Route: "POST /v1/orders/{name}", Subject: "shop.v1.order", MaxBody: 1 << 10, Need: access.Public(), Strict: true},
		func(_ context.Context, o order) (sold, error) { return sold{o}, nil })
	s := open(t, service.RouterConfig{}, func(r *service.Router) { r.Add(op) })
	answer, text := s.call(t, http.MethodPost, "/v1/orders/soup?limit=2&since=2026-12-01T08:00:00Z", `{"text":"hot","name":"of the path"}`)
	check.Equal(t, text, `{"limit":2,"name":"soup","since":"2026-12-01T08:00:00Z","text":"hot"}`+"\n", "answer")
	check.Equal(t, answer.Header.Get("Location")+http.StatusText(answer.StatusCode), "/v1/orders/soupCreated", "head")

	for query, want := range map[string]string{
		"?limit=11&since=soon&limt=1&since=now": "/text ?limt ?since ?limit ?since",
		"?limit=x":                              "/text ?limit",
		"?limit=0":                              "/text ?limit",
	} {
		answer, text = s.call(t, http.MethodPost, "/v1/orders/soup"+query, `{"text":"hot","text":""}`)
		var p service.Problem
		check.OK(t, json.Unmarshal([]byte(text), &p))
		check.Equal(t, paths(p.Errors), want, query)
		check.Equal(t, answer.StatusCode, http.StatusBadRequest, query)
	}
	answer, _ = s.call(t, http.MethodPost, "/v1/orders/soup", `{"text":"`+strings.Repeat("x", 1<<10)+`"}`)
	check.Equal(t, answer.StatusCode, http.StatusRequestEntityTooLarge, "a long body")

	endpoint := service.Endpoints([]service.Op{op})[0]
	check.Equal(t, endpoint.Name+" "+endpoint.Takes, `order {"name":"…","text":"…"}`, "endpoint")
	data, err := endpoint.Answer(t.Context(), service.Request{Data: []byte(`{"name":"soup","text":"hot"}`)})
	check.Equal(t, string(check.Must(data, err)(t)), `{"name":"soup","text":"hot"}`, "over NATS")
	_, err = endpoint.Answer(t.Context(), service.Request{
		Data: []byte(`{"text":"hot"}`), Header: nats.Header{"Idempotency-Key": {"a", "b"}},
	})
	invalid, _ := errors.AsType[*contracts.ValidationError](err)
	check.Require(t, invalid != nil, "%v", err)
	check.Equal(t, paths(invalid.Fields), "/name Idempotency-Key", "mistakes over NATS")
}

func paths(fields []contracts.FieldError) string {
	var all []string
	for _, f := range fields {
		all = append(all, f.Path)
	}
	return strings.Join(all, " ")
}
