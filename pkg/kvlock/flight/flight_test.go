package flight

import (
	"strings"
	"testing"
	"time"
)

func TestConfigReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	err := Config{
		Bucket: "a.b", ClaimTTL: 1500 * time.Millisecond, ResultTTL: -time.Second, OpTimeout: -1, Instance: strings.Repeat("x", 300),
	}.validate()
	for _, want := range []string{"Bucket", "ClaimTTL", "ResultTTL", "OpTimeout", "Instance"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
	if err := (Config{Bucket: "b"}).withDefaults().validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	for _, bucket := range []string{"", "a/b", "a b", "a=", "*", "ä"} {
		if err := (Config{Bucket: bucket}).withDefaults().validate(); err == nil {
			t.Errorf("bucket %q was taken", bucket)
		}
	}
}
