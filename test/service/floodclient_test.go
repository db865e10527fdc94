package service_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
)

// flood is what a client floods a service with: connections on each of which it sends the same.
type flood struct {
	Address string
	N       int
	Text    string
}

// floods are clients in processes of their own, whose files are not those of the service. They print what the answers say, and keep
// the connections open.
var floods = crash.Role[flood]{Name: "flood", Run: func(ctx context.Context, f flood) error {
	conns, err := f.open()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers(conns)); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}}

func (f flood) open() ([]net.Conn, error) {
	conns := make([]net.Conn, f.N)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", f.Address); err != nil {
			return conns[:i], err
		}
		_, _ = io.WriteString(conns[i], f.Text) //nolint:errcheck // the service may have closed it already
	}
	return conns, nil
}

// answers counts the answers on connections by what they say.
func answers(conns []net.Conn) map[string]int {
	counts := map[string]int{}
	for _, c := range conns {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // a stream does not end
		if err != nil {
			counts["closed"]++
			continue
		}
		counts[said(resp)]++
	}
	return counts
}

// said returns the status, and for 429 and 503 Retry-After.
func said(resp *http.Response) string {
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		return fmt.Sprintf("%d after %s", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	return fmt.Sprint(resp.StatusCode)
}

// A request over NATS whose answer takes too long is answered with an error that programs understand.
func TestAnAnswerOverNATSThatTakesTooLongIsAnError(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	m, err := service.StartMicro(nc, service.MicroConfig{
		Description: "Sells", Logger: slog.New(slog.DiscardHandler), Name: "shop", Timeout: time.Millisecond, Version: "1.0.0",
		Endpoints: []service.Endpoint{{Name: "sell", Subject: "shop.v1.sell", Answer: func(ctx context.Context, _ service.Request) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}},
	})
	check.OK(t, err)
	defer func() {
		check.Is(t, m.Stop(), nil)
	}()
	answer := check.Must(nc.RequestWithContext(t.Context(), "shop.v1.sell", nil))(t)
	code := answer.Header.Get(micro.ErrorCodeHeader)
	check.That(t, code == "503" && string(answer.Data) == `{"code":"STORE_UNAVAILABLE"}`, "%s %s", code, answer.Data)
}
