// Package deploy embeds the NATS server configurations of this directory, so
// that tests and the embedded server run the very files that are deployed.
package deploy

import "embed"

// Files holds the server configurations under their paths relative to this
// directory: "single.conf", "cluster/n1.conf". README.md has a table of them.
//
//go:embed *.conf cluster/*.conf
var Files embed.FS
