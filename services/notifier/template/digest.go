package template

import (
	"embed"
	"io/fs"
	"sync"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// builtin has the text of digests that have none of their own: a plain list, in English.
//
//go:embed builtin
var builtin embed.FS

var digestText = sync.OnceValues(func() (*Set, error) {
	folder, err := fs.Sub(builtin, "builtin")
	if err != nil {
		return nil, err //nolint:wrapcheck // cannot fail
	}
	return Parse(folder, Config{})
})

// fallback returns the text for a message whose template there is not: digests have one.
func fallback(m channel.Message) texts {
	if m.EventType != contracts.EventTypeDigest {
		return nil
	}
	set, err := digestText()
	if err != nil {
		return nil
	}
	return (*set.byName.Load())["digest"]
}
