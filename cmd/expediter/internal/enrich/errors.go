package enrich

import "errors"

var (
	// ErrMismatch is returned when an answer is not about the places of its request.
	ErrMismatch = errors.New("enrich: the answer does not match the request")

	// ErrTimeout is returned when places were still pending after Config.Timeout. The rows of all places were written,
	// those of the pending ones with the reason "timeout".
	ErrTimeout = errors.New("enrich: timeout")

	// ErrUnavailable is wrapped by an Enricher that cannot be reached or refuses to work, so that callers can
	// distinguish that from a failure of their own.
	ErrUnavailable = errors.New("enrich: unavailable")
)
