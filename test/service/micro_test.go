package service_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
)

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
	answer, err := nc.RequestWithContext(t.Context(), "shop.v1.sell", nil)
	check.OK(t, err)
	if code := answer.Header.Get(micro.ErrorCodeHeader); code != "503" || string(answer.Data) != `{"code":"STORE_UNAVAILABLE"}` {
		t.Errorf("%s %s", code, answer.Data)
	}
}
