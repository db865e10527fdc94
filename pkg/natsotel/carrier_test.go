package natsotel_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsotel"
)

func TestCarrier(t *testing.T) {
	t.Parallel()
	header := nats.Header{"Traceparent": {"old"}, "TRACEPARENT": {"older"}, "Nats-Msg-Id": {"1"}}
	carrier := natsotel.Carrier(header)
	if got := carrier.Get("traceparent"); got != "older" {
		t.Errorf("got %q: of names that differ in case alone the first counts", got)
	}
	if got := carrier.Get("Traceparent"); got != "old" {
		t.Errorf("got %q: the exact name counts first", got)
	}
	carrier.Set("TraceParent", "new")
	if want := (nats.Header{"traceparent": {"new"}, "Nats-Msg-Id": {"1"}}); !reflect.DeepEqual(header, want) {
		t.Errorf("got %v, want %v", header, want)
	}
	if got := carrier.Keys(); !slices.Equal(got, []string{"Nats-Msg-Id", "traceparent"}) {
		t.Errorf("got %v", got)
	}
	if got := carrier.Get("tracestate"); got != "" {
		t.Errorf("got %q for what is not there", got)
	}
}

func ExampleCarrier() {
	header := nats.Header{}
	natsotel.Carrier(header).Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	fmt.Println(header)
	// Output: map[traceparent:[00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01]]
}
