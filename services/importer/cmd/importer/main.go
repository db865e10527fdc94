// The importer turns recipe videos and pages into recipes. Its configuration is the environment; see importer.Config.
package main

import (
	"os"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/services/importer"
)

func main() { os.Exit(service.Main("importer", importer.FromEnvironment, importer.Run)) }
