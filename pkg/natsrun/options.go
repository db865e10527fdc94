package natsrun

import (
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	loopback   = "127.0.0.1"
	randomPort = -1
	singleConf = "single.conf"
)

// serverOptions reads the configuration file and overrides the settings of an embedded server: its listener, its store
// directory, its name.
func serverOptions(cfg Config, storeDir string) (*server.Options, error) {
	opts, err := readConfig(cfg)
	if err != nil {
		return nil, err
	}

	opts.ServerName = cfg.ServerName
	opts.StoreDir = storeDir
	embed(opts)

	opts.DontListen = !cfg.Listen
	opts.Host = loopback
	opts.Port = cfg.Port

	if cfg.Port == 0 {
		opts.Port = randomPort
	}

	for _, change := range cfg.changes {
		change(opts)
	}
	return opts, nil
}

// embed turns off features that need a process of the server's own, and the ports for operators.
func embed(opts *server.Options) {
	opts.DisableJetStreamBanner = true
	opts.HTTPHost, opts.HTTPPort, opts.HTTPSPort = "", 0, 0
	opts.LogFile, opts.PidFile, opts.PortsFileDir = "", "", ""
	opts.NoSigs = true
}

func readConfig(cfg Config) (*server.Options, error) {
	if cfg.ConfigFile != "" {
		opts, err := server.ProcessConfigFile(cfg.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("natsrun: read ConfigFile %s: %w", cfg.ConfigFile, err)
		}
		return opts, nil
	}

	text, err := configText(singleConf, cfg.Users)
	if err != nil {
		return nil, err
	}
	return parse(text, singleConf)
}
