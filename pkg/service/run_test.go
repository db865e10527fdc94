package service_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/service"
)

// A service that cannot connect says why, and closes what it holds.
func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]service.BaseConfig{
		"shop: connect to nats://127.0.0.1:1": {NATSConfig: service.NATSConfig{NATSURL: "nats://127.0.0.1:1"}},
		"shop: NATS_NKEY":                     {NATSConfig: service.NATSConfig{NATSNkey: "/nonexistent"}},
	} {
		cfg.Logger = slog.New(slog.DiscardHandler)
		err := service.Run(t.Context(), service.Spec{
			Close: func() error { return errSold }, Config: cfg.WithDefaults(service.None, 1), Name: "shop",
			Open: func(context.Context, *service.Service) error { return errors.New("opened without a server") },
		})
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, errSold) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type config struct {
	service.BaseConfig

	Old   bool          `env:"ENABLE_OLD"`
	Plain string        // has no variable
	Inner string        `env:"-"`
	Size  int           `env:"SHOP_SIZE"`
	Room  string        `env:"SHOP_ROOM_SERVICE_URL"`
	Wait  time.Duration `env:"SHOP_WAIT"`
}

func TestRead(t *testing.T) {
	t.Parallel()
	var cfg config
	err := service.Read("shop", map[string]string{
		"SHOP_SIZE": "3", "SHOP_WAIT": "7s", "ENABLE_OLD": "true", "SHOPPING": "x", "HOME": "/", "SERVICE_LISTEN": ":1",
		"SHOP_LISTEN": ":2", "NATS_URL": "nats://x:4222", "SHOP_REPLICAS": "3",
		"SHOP_ROOM_SERVICE_URL": "https://x",
	}, io.Discard, &cfg)
	cfg.Logger = nil
	want := config{Old: true, Room: "https://x", Size: 3, Wait: 7 * time.Second}
	want.Listen, want.NATSURL, want.Replicas = ":2", "nats://x:4222", 3
	if err != nil || !reflect.DeepEqual(cfg, want) {
		t.Errorf("%+v: %v", cfg, err)
	}
}

func TestReadReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	var cfg config
	err := service.Read("shop", map[string]string{
		"SHOP_SIZE": "many", "SHOP_WAIT": "soon", "ENABLE_OLD": "perhaps", "SHOP_SIZ": "1", "SHOP_": "1", "SHOP_ACK_WAIT": "3x", "SHOP_LOG_LEVEL": "loud",
	}, io.Discard, &cfg)
	for _, want := range []string{
		`shop: SHOP_SIZE is "many": want a value of the kind int`, `SHOP_WAIT is "soon"`, `ENABLE_OLD is "perhaps"`, `SHOP_ACK_WAIT is "3x"`,
		"unknown environment variable SHOP_SIZ:", "unknown environment variable SHOP_:", `SHOP_LOG_LEVEL is "loud": want debug, info, warn or error`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say: %s", err, want)
		}
	}
}

// The log has the events from the configured level on, as lines of JSON.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	for set, lines := range map[string]int{"": 3, "debug": 4, "info": 3, "warn": 2, "error": 1, "DEBUG": 4} {
		var cfg config
		var log bytes.Buffer
		if err := service.Read("shop", map[string]string{"SHOP_LOG_LEVEL": set}, &log, &cfg); err != nil {
			t.Fatal(err)
		}
		for _, level := range levels {
			cfg.Logger.Log(t.Context(), level, "shop: open")
		}
		if got := strings.Count(log.String(), `"msg":"shop: open"}`+"\n"); got != lines {
			t.Errorf("%q logs %d lines, want %d:\n%s", set, got, lines, &log)
		}
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	err := service.BaseConfig{
		AckWait: 1, Concurrency: -1, LimitConfig: service.LimitConfig{Connections: 1, Rate: -1, Requests: -1, Streams: -1, Waiting: -1}, MaxBytes: -1, Replicas: 6,
	}.WithDefaults(":1", 8).Validate("shop")
	for _, want := range []string{
		"shop: AckWait (SHOP_ACK_WAIT) is 1ns: want at least 100ms", "shop: Concurrency (SHOP_CONCURRENCY) is -1: want a positive number",
		"shop: Connections (SHOP_CONNECTIONS) is 1: want at least 16", "shop: Rate (SHOP_RATE) is -1: want a positive number",
		"shop: Requests (SHOP_REQUESTS) is -1: want a positive number", "shop: Streams (SHOP_STREAMS) is -1: want a positive number",
		"shop: Waiting (SHOP_WAITING) is -1: want a positive number",
		"shop: MaxBytes (SHOP_MAX_BYTES) is -1: want a positive number", "shop: Replicas (SHOP_REPLICAS) is 6: want 1 to 5",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say: %s", err, want)
		}
	}
	for want, cfg := range map[string]service.BaseConfig{
		"shop: OIDCIssuer (SHOP_OIDC_ISSUER) is http://id.example.com: want the https address": {OIDCAudience: "x", OIDCIssuer: "http://id.example.com"},
		"shop: OIDCIssuer (SHOP_OIDC_ISSUER) is : want":                                        {OIDCScopeClaim: "scp"},
		`shop: OIDCAudience (SHOP_OIDC_AUDIENCE) is "": want the audience`:                     {OIDCIssuer: "https://id.example.com"},
		"shop: Insecure (SHOP_INSECURE) is true: want false":                                   {Insecure: true, OIDCAudience: "x", OIDCIssuer: "https://x"},
	} {
		if err := cfg.WithDefaults(":1", 8).Validate("shop"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say: %s", err, want)
		}
	}
	if err := (service.BaseConfig{}).WithDefaults(":1", 8).Validate("shop"); err != nil {
		t.Errorf("the defaults are invalid: %v", err)
	}
}

func TestHostsAndOriginsAreChecked(t *testing.T) {
	t.Parallel()
	err := service.BaseConfig{
		Hosts:   []string{"app.example.com", "*.example.com", "[", "https://x", ""},
		Origins: []string{"https://app.example.com", "http://localhost:3000", "https://[::1]:8443"},
	}.WithDefaults(":1", 8).Validate("shop")
	if err == nil || strings.Count(err.Error(), "shop: Hosts (SHOP_HOSTS) has ") != 3 || strings.Contains(err.Error(), "SHOP_ORIGINS") {
		t.Errorf("got %v", err)
	}
	for _, origin := range []string{
		"", "*", "null", "app.example.com", "https://", "https://*.example.com", "https://App.example.com", "https://app.example.com/",
		"https://app.example.com:443", "http://app.example.com:80", "ftp://app.example.com", "https://a@app.example.com", "https://app.example.com?x",
	} {
		err := service.BaseConfig{Origins: []string{origin}}.WithDefaults(":1", 8).Validate("shop")
		if err == nil || !strings.Contains(err.Error(), "shop: Origins (SHOP_ORIGINS) has ") {
			t.Errorf("%q: %v", origin, err)
		}
	}
}
