// The notifier delivers each event to its recipients. Its configuration is the environment; see notifier.Config.
package main

import (
	"os"
	_ "time/tzdata" // quiet hours are in the zones of users, also on a machine without zone files

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/services/notifier"
)

func main() { os.Exit(service.Main("notifier", notifier.FromEnvironment, notifier.Run)) }
