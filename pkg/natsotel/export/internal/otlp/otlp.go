// Package otlp sends traces by OTLP over HTTP. OpenTelemetry's own otlptracehttp imports gRPC, which is not used here: a sixteenth of all
// that a service compiles.
package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/retryafter"
)

const (
	firstRetry = 5 * time.Second
	maxRetry   = 30 * time.Second
	retryFor   = time.Minute // then the spans of a batch are dropped

	maxAnswer = 64 << 10 // bytes of an answer that are read
	protobuf  = "application/x-protobuf"
)

// busy has the statuses after which the collector may take the same spans later.
var busy = []int{
	http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// Client is an [otlptrace.Client].
type Client struct {
	gzip    bool
	header  http.Header
	http    http.Client
	life    context.Context //nolint:containedctx // from Start to Stop
	stop    context.CancelFunc
	timeout time.Duration
	tls     *tls.Config
	url     *url.URL
}

// New returns the client that the environment describes. The error names every mistake in it.
func New() (*Client, error) {
	c := &Client{
		header:  http.Header{"User-Agent": {"OTel OTLP Exporter Go/" + otlptrace.Version()}},
		timeout: 10 * time.Second,
		tls:     &tls.Config{MinVersion: tls.VersionTLS12},
	}
	err := c.configure()
	c.header.Set("Content-Type", protobuf)
	if c.gzip {
		c.header.Set("Content-Encoding", "gzip")
	}
	c.http = http.Client{Timeout: c.timeout, Transport: &http.Transport{
		ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second, Proxy: http.ProxyFromEnvironment, TLSClientConfig: c.tls,
	}}
	return c, err
}

// Start makes the context that Stop ends. It does not connect: each batch is a request of its own.
func (c *Client) Start(ctx context.Context) error {
	c.life, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	return nil
}

// Stop ends the requests that are under way.
func (c *Client) Stop(context.Context) error {
	c.stop()
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans, and sends them again while the collector is busy.
func (c *Client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // the bytes of an ExportTraceServiceRequest
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	if c.gzip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(body)
		if err := errors.Join(err, w.Close()); err != nil {
			return fmt.Errorf("compress spans: %w", err)
		}
		body = b.Bytes()
	}
	ctx, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	for retry := firstRetry; ; retry = min(retry*3/2, maxRetry) {
		again, after, err := c.send(ctx, body)
		wait := max(after, retry/2+rand.N(retry)) //nolint:gosec // spreads retries, protects no secret
		if end, _ := ctx.Deadline(); !again || time.Until(end) <= wait || !pause.For(ctx, wait) {
			return err
		}
	}
}

// send makes one attempt. With an error it reports whether another attempt may succeed, and returns the time to wait before it that the
// collector asked for.
func (c *Client) send(ctx context.Context, body []byte) (again bool, after time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url.String(), bytes.NewReader(body))
	if err != nil {
		return false, 0, fmt.Errorf("request: %w", err)
	}
	request.Header = c.header.Clone()
	answer, err := c.http.Do(request)
	if err != nil {
		failed, ok := errors.AsType[*url.Error](err)
		return ok && failed.Timeout(), 0, err //nolint:wrapcheck // names the collector
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case answer.StatusCode/100 != 2:
		return slices.Contains(busy, answer.StatusCode), retryafter.Parse(answer.Header, 0, retryFor),
			fmt.Errorf("%s answered %s: %s", c.url.Redacted(), answer.Status, strings.TrimSpace(string(text)))
	case err != nil:
		return false, 0, fmt.Errorf("read the answer of %s: %w", c.url.Redacted(), err)
	case answer.Header.Get("Content-Type") == protobuf:
		return false, 0, rejected(text)
	}
	return false, 0, nil
}

// rejected returns the error in an ExportTraceServiceResponse: the number of refused spans, and the reason. It returns nil for an answer
// without one.
func rejected(answer []byte) error {
	_, _, n := protowire.ConsumeTag(answer)
	partial, _ := protowire.ConsumeBytes(answer[max(n, 0):])
	var refused uint64
	var why []byte
	for len(partial) > 0 {
		_, kind, tag := protowire.ConsumeTag(partial)
		value := partial[max(tag, 0):]
		switch kind {
		case protowire.VarintType:
			refused, n = protowire.ConsumeVarint(value)
		case protowire.BytesType:
			why, n = protowire.ConsumeBytes(value)
		default:
			n = -1
		}
		if tag < 0 || n < 0 {
			return nil
		}
		partial = value[n:]
	}
	if refused == 0 && len(why) == 0 {
		return nil
	}
	return fmt.Errorf("the collector refused %d spans: %s", refused, why)
}
