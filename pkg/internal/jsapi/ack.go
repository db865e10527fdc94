package jsapi

import (
	"bytes"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// acknowledgement is what the server answers to a message.
type acknowledgement struct {
	Error    *jetstream.APIError `json:"error"`
	Sequence uint64              `json:"seq"`
	Stream   string              `json:"stream"`
}

// acknowledged reads an acknowledgement of stream in the form in which servers write it, which takes a tenth of the time of
// encoding/json.
func acknowledged(data []byte, stream string) (sequence uint64, ok bool) {
	const before, between = `{"stream":"`, `","seq":`
	digits := len(before) + len(stream) + len(between)
	if len(data) <= digits || string(data[:len(before)]) != before ||
		string(data[len(before):len(before)+len(stream)]) != stream || string(data[digits-len(between):digits]) != between {
		return 0, false
	}
	rest, ok := bytes.CutSuffix(data[digits:], []byte("}"))
	if !ok || bytes.HasPrefix(rest, []byte("0")) {
		return 0, false
	}
	sequence, err := strconv.ParseUint(string(rest), 10, 64)
	return sequence, err == nil
}
