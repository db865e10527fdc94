package natsrun

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// portsPerNode are those for clients, for monitoring and for routes.
const portsPerNode = 3

// confNodes is how many node files deploy/nats/cluster has.
const confNodes = 3

// nodeSpec is the complete configuration of a node, in this or another process.
type nodeSpec struct {
	ClientPort  int    `json:"client_port"`
	Dir         string `json:"dir"`
	MonitorPort int    `json:"monitor_port"`
	Name        string `json:"name"`
	RoutePort   int    `json:"route_port"`
	Text        string `json:"text"` // the configuration, with its variables and includes
}

// nodeText returns the configuration of the node with index i. Nodes beyond
// those that have a file take the last one's and differ in name only.
func nodeText(i int, users map[string]string, routes []string, password string) (string, error) {
	name := fmt.Sprintf("cluster/n%d.conf", min(i+1, confNodes))
	all := fmt.Sprintf("NATS_ROUTES: [%q]", strings.Join(routes, `", "`))
	all = strings.ReplaceAll(all, `\"`, `"`)
	return configText(name, users, define("NATS_ROUTE_PASSWORD", password), all)
}

// options parses the configuration and sets the directories and ports of this machine.
func nodeOptions(s nodeSpec) (*server.Options, error) {
	opts, err := parse(s.Text, "cluster configuration")
	if err != nil {
		return nil, err
	}

	embed(opts)

	opts.ServerName = s.Name
	opts.StoreDir = s.Dir
	opts.Host, opts.Port = loopback, s.ClientPort
	opts.HTTPHost, opts.HTTPPort = loopback, s.MonitorPort
	opts.Cluster.Host, opts.Cluster.Port = loopback, s.RoutePort
	return opts, nil
}
