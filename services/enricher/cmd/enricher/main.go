// The enricher attaches delivery links to restaurants. Its configuration is the environment; see enricher.Config.
package main

import (
	"os"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/services/enricher"
)

func main() { os.Exit(service.Main("enricher", enricher.FromEnvironment, enricher.Run)) }
