// Package failure names the reasons why an import fails. Readers of a status accept other codes too.
package failure

import "github.com/expediter-io/expediter/pkg/contracts"

// The codes in contracts.ImportStatus.
const (
	Private          contracts.ImportCode = "private"
	Unavailable      contracts.ImportCode = "unavailable"
	BotCheck         contracts.ImportCode = "bot_check"
	NoCaptions       contracts.ImportCode = "no_captions"
	CaptionsBlocked  contracts.ImportCode = "captions_blocked"
	RateLimited      contracts.ImportCode = "rate_limited"
	Network          contracts.ImportCode = "network"
	Timeout          contracts.ImportCode = "timeout"
	BadCaptions      contracts.ImportCode = "bad_captions"
	TooShort         contracts.ImportCode = "too_short"
	ExtractionFailed contracts.ImportCode = "extraction_failed"
	InvalidRecipe    contracts.ImportCode = "invalid_recipe"
	StoreFailed      contracts.ImportCode = "store_failed"
	// Cancelled: a client cancelled the job.
	Cancelled contracts.ImportCode = "cancelled"
	// Crashed: the workers of the job ended in the middle of it, or failed in a way that has no code.
	Crashed contracts.ImportCode = "crashed"
)
