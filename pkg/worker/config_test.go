package worker

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConfigReportsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()

	ok := Config{Consumer: "c", Stream: "S"}.withDefaults()
	if err := ok.validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}

	for _, edge := range []time.Duration{100 * time.Millisecond, 24 * time.Hour} {
		cfg := ok
		cfg.AckWait = edge
		if err := cfg.validate(); err != nil {
			t.Errorf("AckWait %s: %v", edge, err)
		}
	}

	err := Config{
		AckWait: 24*time.Hour + 1, Bucket: "a.b", Concurrency: -1, DeadSubject: "dead.>", HardStop: -2, RequestTimeout: -1,
		SettleTimeout: -1, SoftStop: -2, StepBucket: "*", StepTTL: time.Second, Stream: "a b", StuckAfter: -1,
	}.withDefaults().validate()

	for _, field := range []string{
		"AckWait", "Bucket", "Concurrency", "Consumer", "DeadSubject", "HardStop", "RequestTimeout", "SettleTimeout", "SoftStop",
		"StepBucket", "StepTTL", "Stream", "StuckAfter",
	} {
		if err == nil || !strings.Contains(err.Error(), "Config."+field+" is") {
			t.Errorf("%v; want it to name %s", err, field)
		}
	}
}
