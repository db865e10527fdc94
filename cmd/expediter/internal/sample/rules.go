package sample

import (
	_ "embed"
	"slices"
)

//go:embed rules.yaml
var rules []byte

// Rules are rules of a notifier whose only channel is the inbox.
func Rules() []byte { return slices.Clone(rules) }
