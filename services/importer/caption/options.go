package caption

import (
	"errors"
	"fmt"
)

// The limits that hold when Options names none.
const (
	// DefaultMaxBytes is room for the longest caption files there are, hundreds of times over.
	DefaultMaxBytes = 256 << 20
	// DefaultMaxCueBytes is far above what a screen can show.
	DefaultMaxCueBytes = 4 << 20
	// DefaultMaxCues is a day of cues that last a third of a second.
	DefaultMaxCues = 250_000
	// DefaultMaxTextBytes is a week of speech.
	DefaultMaxTextBytes = 32 << 20
)

// Options sets how to read and how much. The zero value reads any format with the default limits.
type Options struct {
	// Format is what to read the input as. Defaults to FormatAuto, which looks at the content.
	Format Format

	// MaxBytes is how much of the input is read. Defaults to DefaultMaxBytes.
	MaxBytes int64

	// MaxCueBytes is how much is kept of one cue, and of one line. Defaults to DefaultMaxCueBytes.
	MaxCueBytes int

	// MaxCues is how many cues are kept. Defaults to DefaultMaxCues.
	MaxCues int

	// MaxTextBytes is how much is kept of the identifiers and texts of all cues together. Defaults to DefaultMaxTextBytes.
	MaxTextBytes int64

	// Timed refuses text without times, which any text is. It is for input that has to be captions. Defaults to false.
	Timed bool
}

func (o Options) withDefaults() Options {
	if o.Format == "" {
		o.Format = FormatAuto
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxCueBytes == 0 {
		o.MaxCueBytes = DefaultMaxCueBytes
	}
	if o.MaxCues == 0 {
		o.MaxCues = DefaultMaxCues
	}
	if o.MaxTextBytes == 0 {
		o.MaxTextBytes = DefaultMaxTextBytes
	}
	return o
}

// validate reports everything that is wrong at once. It expects the defaults to be set.
func (o Options) validate() error {
	var errs []error
	if _, err := ParseFormat(string(o.Format)); err != nil {
		errs = append(errs, fmt.Errorf("option Format: %w", err))
	}
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"MaxBytes", o.MaxBytes},
		{"MaxCueBytes", int64(o.MaxCueBytes)},
		{"MaxCues", int64(o.MaxCues)},
		{"MaxTextBytes", o.MaxTextBytes},
	} {
		if limit.value < 1 {
			errs = append(errs, fmt.Errorf("option %s is %d: want 1 or more, or 0 for the default", limit.name, limit.value))
		}
	}
	return errors.Join(errs...)
}
