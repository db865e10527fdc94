package contracts

import (
	"time"

	"github.com/expediter-io/expediter/internal/strictjson"
)

// ProviderWolt is the name of the first provider, and the only one with its own deprecated field.
const ProviderWolt = "wolt"

// ProviderStatus is the status of a provider's link, as clients see it.
type ProviderStatus string

// The three statuses.
const (
	// StatusPending: there is no answer yet.
	StatusPending ProviderStatus = "PENDING"
	// StatusFound: the place has a page at the provider.
	StatusFound ProviderStatus = "FOUND"
	// StatusNotFound: the provider answered and does not have the place.
	StatusNotFound ProviderStatus = "NOT_FOUND"
)

// Outcome is how one look-up ended. Two of the four are answers; the other two leave the status PENDING.
type Outcome string

// The four outcomes.
const (
	// OutcomeFound is an answer: one venue is the place.
	OutcomeFound Outcome = "FOUND"
	// OutcomeNotFound is an answer: the provider answered without an error and no venue is the place.
	OutcomeNotFound Outcome = "NOT_FOUND"
	// OutcomeAmbiguous is no answer: several venues could be the place.
	OutcomeAmbiguous Outcome = "AMBIGUOUS"
	// OutcomeError is no answer: the provider failed, or its answer cannot be trusted.
	OutcomeError Outcome = "ERROR"
)

// Answer reports whether the outcome is an answer, which may be kept and shown.
func (o Outcome) Answer() bool { return o == OutcomeFound || o == OutcomeNotFound }

// Status returns the status that clients see: AMBIGUOUS and ERROR stay PENDING.
func (o Outcome) Status() ProviderStatus {
	if o.Answer() {
		return ProviderStatus(o)
	}
	return StatusPending
}

// Reasons why a state is still PENDING though a look-up has ended.
const (
	reasonAmbiguous     = "ambiguous"      // OutcomeAmbiguous
	reasonProviderError = "provider_error" // OutcomeError
)

// ProviderState is one provider's entry in a restaurant: {"status":"FOUND","url":"https://…"}. status and url
// are always written (url is null unless FOUND); reason and updatedAt only when they are set.
type ProviderState struct {
	// Status is PENDING, FOUND or NOT_FOUND.
	Status ProviderStatus `json:"status" jsonschema:"enum=PENDING,enum=FOUND,enum=NOT_FOUND"`
	// URL is the place's page at the provider when Status is FOUND, nil otherwise.
	URL *string `json:"url" jsonschema:"format=uri,maxLength=2048,nullable"`
	// Reason is why the state is still PENDING though a look-up has ended, such as "ambiguous".
	Reason string `json:"reason,omitempty" jsonschema:"pattern=^[A-Za-z0-9_-]*$,maxLength=64"`
	// UpdatedAt is when the answer was found; zero when it is not known.
	UpdatedAt time.Time `json:"updatedAt,omitzero"`
}

// Validate checks the status, that exactly a FOUND state has a URL, and that only a PENDING one has a reason.
func (s ProviderState) Validate() error {
	var c checks
	c.oneOf("/status", string(s.Status), string(StatusPending), string(StatusFound), string(StatusNotFound))
	switch {
	case s.URL == nil && s.Status == StatusFound:
		c.add("/url", "is required when status is FOUND")
	case s.URL != nil && s.Status != StatusFound:
		c.add("/url", "must be null unless status is FOUND")
	case s.URL != nil:
		c.url("/url", *s.URL)
	}
	c.optionalName("/reason", s.Reason)
	c.Add(s.Reason != "" && s.Status != StatusPending, "/reason", "must be absent unless status is PENDING")
	c.timestamp("/updatedAt", s.UpdatedAt)
	return c.In("ProviderState")
}

// stateFields are the members of a state that this package knows.
var stateFields = []string{"status", "url", "reason", "updatedAt"}

// over writes the state over an earlier one: the known members are replaced in place, every other member of the earlier state stays
// as it was.
func (s ProviderState) over(old []byte) []byte {
	written := s.append(make([]byte, 0, 128))
	o := object{members: strictjson.Members(old)}
	if len(o.members) == 0 {
		return written
	}
	now := object{members: strictjson.Members(written)}
	for _, name := range stateFields {
		if value := now.get(name); value == nil {
			o.remove(name)
		} else {
			o.put(name, value)
		}
	}
	return o.append(nil)
}

// append writes the state.
func (s ProviderState) append(dst []byte) []byte {
	dst = appendQuoted(append(dst, `{"status":`...), string(s.Status))
	dst = append(dst, `,"url":`...)
	if s.URL == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendQuoted(dst, *s.URL)
	}
	if s.Reason != "" {
		dst = appendQuoted(append(dst, `,"reason":`...), s.Reason)
	}
	if !s.UpdatedAt.IsZero() {
		dst = appendQuoted(append(dst, `,"updatedAt":`...), s.UpdatedAt.UTC().Format(time.RFC3339Nano))
	}
	return append(dst, '}')
}

// quote writes a JSON string without the escaping meant for HTML.
func quote(s string) []byte { return appendQuoted(make([]byte, 0, len(s)+2), s) }

// appendQuoted appends quote(s) to dst.
func appendQuoted(dst []byte, s string) []byte {
	if isPlain(s) {
		return append(append(append(dst, '"'), s...), '"')
	}
	raw, err := marshal(s)
	if err != nil {
		raw = []byte(`""`) // a string cannot fail to encode
	}
	return append(dst, raw...)
}

// isPlain reports whether a JSON string may hold s as it is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
